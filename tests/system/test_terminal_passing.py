"""A run's output and a status line on one terminal: neither leaves a trace on the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl_supervisor.cli.terminal.output_passthrough import PassingOutput
from agentctl_supervisor.cli.terminal.screen import Screen
from agentctl_testkit.pty import Emulator

_STATUS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=79)
_PIECES = st.lists(
    st.sampled_from(
        [
            *(b"word", b"\r\n", b"\r\n", b"a\r\nb", b"100%\r", b"\t", b"\x1b[31mred", b"\x1b[39m"),
            *(
                b"\x1b[0m\r\n",
                b"\x1b[2mfaint\x1b[22m",
                b"\x1b]0;title\x07",
                b"\x1b[",
                b"K",
                b"\x1b",
            ),
            *(b"[?25l", b"\x1b[?25h", b"\x1b[2J", b"\x1b[H", b"\x1b[A", "ü€".encode(), b"x" * 79),
            *(b"\x1b[?1049h", b"\x1b[?2004h\x1b[?1006h", b"\x1b[?7l", b"\x1b[1;31"),
        ]
    ),
    max_size=30,
)


@given(_PIECES, st.data())
def test_the_status_line_leaves_no_trace(pieces: list[bytes], data: st.DataObject) -> None:
    """However output and status are mixed, what stays is what the output alone makes."""
    alone, mixed = Emulator(strict=False), Emulator(strict=False)
    screen, passing = Screen(), PassingOutput()
    for piece in pieces:
        if passing.drives and b"\x1b[?1049" in piece:
            continue
        alone.feed(piece)
        passing.see(piece)
        if data.draw(st.booleans()):
            mixed.feed(screen.status(data.draw(_STATUS).encode()))
        mixed.feed(screen.output(piece))
    mixed.feed(screen.hide())
    assert mixed.lines() == alone.lines()
    assert (mixed.line, mixed.column) == (alone.line, alone.column)
    assert (mixed.modes, mixed.attributes) == (alone.modes, alone.attributes)


@given(_PIECES)
def test_at_the_end_the_terminal_is_as_it_was(pieces: list[bytes]) -> None:
    """Hidden cursor, alternate screen, colours, mouse: all undone, in mid-sequence too."""
    terminal, screen = Emulator(strict=False), Screen()
    for piece in pieces:
        if b"?1049" in piece and 1049 in terminal.modes:
            continue
        terminal.feed(screen.output(piece))
    terminal.feed(screen.end())
    terminal.feed(screen.message(b"the end"))
    assert terminal.is_as_new()
    assert terminal.lines()[-1:] == ["the end"] or b"\x1b[H" in pieces or b"\x1b[A" in pieces


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_it_does_not_matter_where_output_is_cut(data: bytes, cuts: list[int]) -> None:
    """Pipes know no sequences: a piece may end anywhere."""
    whole, cut = PassingOutput(), PassingOutput()
    whole.see(data)
    begin = 0
    for end in [*sorted(cuts), len(data)]:
        cut.see(data[begin:end])
        begin = max(begin, end)
    assert cut.leaves_room == whole.leaves_room
    assert cut.restore() == whole.restore()


@pytest.mark.parametrize(
    ("output", "undone"),
    [
        (b"plain text\n", b""),
        (b"\x1b[1;31mred\x1b[0m", b""),
        (b"\x1b[31mred\x1b[39m", b""),
        (b"\x1b[38;5;1mred", b"\x1b[0m"),
        (b"\x1b[38;2;0;0;0mblack\x1b[m", b""),
        (b"\x1b[?25l", b"\x1b[?25h"),
        (b"\x1b[?25l\x1b[?25h", b""),
        (b"\x1b[?25l\x1b[?1049h", b"\x1b[?1049l\x1b[?25h"),
        (b"\x1b[?1000;1006h", b"\x1b[?1000l\x1b[?1006l"),
        (b"\x1b[>1u", b"\x1b[<1u"),
        (b"\x1b(0\x0e", b"\x1b(B\x0f"),
        (b"\x1b[5;10r", b"\x1b7\x1b[r\x1b8"),
        (b"\x1b[4 q", b"\x1b[0 q"),
        (b"\x1b[4h\x1b=", b"\x1b[4l\x1b>"),
        (b"\x1b]0;a title that never en", b"\x18\x1b\\"),
        (b"torn \x1b[38;5", b"\x18\x1b\\"),
    ],
)
def test_only_what_was_changed_is_put_back(output: bytes, undone: bytes) -> None:
    """A terminal that a run did not change gets not one byte more."""
    passing = PassingOutput()
    passing.see(output)
    assert passing.restore() == undone
    assert passing.restore() == b""


@pytest.mark.parametrize(
    ("output", "room"),
    [
        (b"", True),
        (b"done\n", True),
        (b"\x1b[32mdone\n\x1b[0m", True),
        (b"\x1b]0;title\x07", True),
        (b"Password: ", False),
        (b"50%\r", False),
        (b"\x1b[31mred to the end\n", False),
        (b"\n\x1b[", False),
        (b"up\x1b[2A\n", False),
        (b"\x1b[?1049h\x1b[?1049l\n", False),
    ],
)
def test_the_status_line_waits_for_an_empty_line(output: bytes, room: bool) -> None:
    """A prompt, a progress bar and a full-screen program keep the terminal for themselves."""
    passing = PassingOutput()
    passing.see(output)
    assert passing.leaves_room == room


def test_our_words_begin_on_a_line_of_their_own() -> None:
    """In the middle of the run's line, colour or sequence, a message still stands alone."""
    terminal, screen = Emulator(), Screen()
    terminal.feed(screen.output(b"\x1b[31mworking on i"))
    terminal.feed(screen.message(b"demo: asked to end"))
    assert terminal.lines() == ["working on i", "demo: asked to end"]
    assert terminal.is_as_new()
