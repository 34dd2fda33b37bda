"""Packets between warden and init: whole or not at all, and none of it waits."""

import contextlib
import os
from collections.abc import Iterator

import pytest

from agentctl_child.keepers.packet_pipe import LONGEST, PacketReader, small_pipe, write_packet
from agentctl_child.keepers.refusal import CannotStartError
from agentctl_protocol.errors import LocalProtocolError
from agentctl_protocol.spawning import pack


@pytest.fixture
def ends() -> Iterator[tuple[PacketReader, int]]:
    reads, writes = small_pipe()
    os.set_blocking(writes, False)
    reader = PacketReader(reads)
    yield reader, writes
    for end in (reads, writes):
        with contextlib.suppress(OSError):
            os.close(end)


def test_what_was_written_is_read_in_the_same_packets(ends: tuple[PacketReader, int]) -> None:
    """Several at once, then none, then the end."""
    reader, writes = ends
    for packet in (b"a", b"bc", b"d"):
        write_packet(writes, packet)
    assert reader.read() == [b"a", b"bc", b"d"]
    assert reader.read() == []
    write_packet(writes, b"last")
    os.close(writes)
    assert reader.read() == [b"last"]
    assert reader.read() is None


def test_a_packet_without_room_is_dropped_whole(ends: tuple[PacketReader, int]) -> None:
    """Nobody waits for a reader that was stopped, and no half packet garbles the next."""
    reader, writes = ends
    for _ in range(10):
        write_packet(writes, bytes(LONGEST))
    read = reader.read()
    assert read is not None
    assert 0 < len(read) < 10
    assert set(read) == {bytes(LONGEST)}
    write_packet(writes, b"next")
    assert reader.read() == [b"next"]


def test_without_a_reader_a_packet_is_dropped(ends: tuple[PacketReader, int]) -> None:
    """Whoever is gone cannot be told."""
    reader, writes = ends
    reader.close()
    write_packet(writes, b"x")


def test_a_packet_that_is_too_long_is_a_fault_of_ours(ends: tuple[PacketReader, int]) -> None:
    """It would not be written whole."""
    with pytest.raises(LocalProtocolError):
        write_packet(ends[1], bytes(LONGEST + 1))


def test_the_longest_refusal_fits() -> None:
    """Whatever path or reason is in it, in the longest characters that there are."""
    error = CannotStartError("not_executable", "\U0010ffff" * 9999, hint="\U0010ffff" * 9999)
    assert len(pack(error.packet())) <= LONGEST
