"""`agentctl logs`: the bytes that a run wrote, in order, from anywhere in a log of any length."""

import os
import pty
import signal
import subprocess
import tty
from pathlib import Path

import pytest

from agentctl_protocol.records import Output
from agentctl_supervisor.cli.terminal.output_sanitizer import HarmlessOutput
from agentctl_supervisor.observe.follow import Following
from agentctl_supervisor.store.log_places import tail
from agentctl_testkit import AgentctlHome
from agentctl_testkit.held import HeldRun

_EVIL = (
    b"one\x1b]52;c;aGVsbG8=\x07 \x1b]0;title\x1b\\two\x1b[2J\x1b[10;10H\x1b[?1049h\x1bc"
    b"\x1bP1;2qdcs\x1b\\ \x1b[1;31mred\x1b[0m\x9b\xc2\x9b5A\xc2\x9d0;c1\xc2\x9c three\x08\x07\r\n"
    b"50%\r100%\n\x1b]2;no end of this\nbut here is more\n\xe2\x80\xaebidi \xe6\xbc\xa2\n\x1b[38;5"
)
_SHOWN = "one two \x1b[1;31mred\x1b[0m\ufffd three\n50%\n100%\n\nbut here is more\n?bidi 漢\n"


def _pieces(count: int) -> list[tuple[str, bytes]]:
    """Output of two streams in pieces that end anywhere, every byte value in it."""
    every = bytes(range(256))
    return [
        ("stderr" if n % 3 == 0 else "stdout", b"%d:" % n + every[n % 256 :] + every)
        for n in range(count)
    ]


def _read_until(descriptor: int, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        try:
            more = os.read(descriptor, 1 << 16)
        except OSError:  # a terminal without anybody on the other side
            break
        if not more:
            break
        data += more
    return data


def test_the_whole_of_both_streams_comes_in_order(home: AgentctlHome) -> None:
    """Over more than 20 segments, piped, as it was written."""
    with HeldRun(home, "demo") as run:
        for stream, data in _pieces(250):
            run.write(data, stream)
        assert run.segments > 20
    done = home.run("logs", "demo")
    assert (done.code, done.err) == (0, "")
    assert done.stdout == b"".join(data for _, data in _pieces(250))
    assert home.run("logs", "--raw", "demo").stdout == done.stdout


def test_following_goes_over_rotations_and_ends_with_the_run(home: AgentctlHome) -> None:
    """Every byte once, those from before, those that come, and those of the end; then it leaves."""
    with HeldRun(home, "demo") as run:
        run.write(b"before\n")
        following = home.start("logs", "-f", "demo")
        assert following.stdout is not None
        assert following.stdout.readline() == b"before\n"
        expected = b""
        for stream, data in _pieces(300):
            run.write(data, stream)
            expected += data
        assert run.segments > 20
        run.finish()
        out, err = following.communicate(timeout=60)
    assert out == expected
    assert (following.returncode, err) == (0, b"")


def test_following_shows_a_piece_without_waiting_for_its_line(home: AgentctlHome) -> None:
    """A prompt is seen at once, though neither line nor run have ended."""
    with HeldRun(home, "demo") as run:
        following = home.start("logs", "-f", "demo")
        assert following.stdout is not None
        run.write(b"name? ")
        assert _read_until(following.stdout.fileno(), b"name? ") == b"name? "
        run.finish()
        assert following.wait(timeout=60) == 0
        following.communicate()


def test_ctrl_c_leaves_the_run_alone_and_says_how_to_stop_it(home: AgentctlHome) -> None:
    """130, a hint, and the run is as it was."""
    with HeldRun(home, "demo") as run:
        following = home.start("logs", "-f", "demo")
        assert following.stdout is not None
        run.write(b"up\n")
        assert following.stdout.readline() == b"up\n"
        following.send_signal(signal.SIGINT)
        _, err = following.communicate(timeout=60)
        assert following.returncode == 130
        assert err.decode() == f"the run goes on; agentctl stop {run.id} stops it\n"
        assert run.directory.is_held()


@pytest.mark.parametrize("last", [b"", b"open", b"\n\n"], ids=["closed", "open", "empty lines"])
def test_the_last_lines_are_those_of_the_whole(home: AgentctlHome, last: bytes) -> None:
    """For every number of lines, wherever segments and pieces end."""
    with HeldRun(home, "demo", segment_bytes=300) as run:
        for number in range(40):
            run.write(b"line %d\npart %d of" % (number, number))
            run.write(b" it\n" if number % 2 else b"", "stderr")
        run.write(b"end\n" + last)
        assert run.segments > 5
    whole = b"".join(_output(home, run, 10_000))
    lines = whole.splitlines(keepends=True)
    for count in range(1, len(lines) + 3):
        assert b"".join(_output(home, run, count)) == b"".join(lines[-count:]), count
    assert _output(home, run, 0) == []


def _output(home: AgentctlHome, run: HeldRun, lines: int) -> list[bytes]:
    """What a reader that begins at the tail sees behind the lines that it is to skip."""
    begin = tail(run.directory.path, run.id, lines)
    data = b"".join(
        record.body.data
        for record in Following(run.directory, start=begin.start)
        if isinstance(record.body, Output)
    )
    if begin.lines_before > data.count(b"\n"):
        return []
    rest = data.split(b"\n", begin.lines_before)[-1]
    return [rest] if rest else []


def test_the_last_lines_are_printed_and_then_what_comes(home: AgentctlHome) -> None:
    """`-f -n 2`: two lines of the past, all of the future."""
    with HeldRun(home, "demo", segment_bytes=64) as run:
        for number in range(20):
            run.write(b"%d\n" % number)
        following = home.start("logs", "-fn2", "demo")
        assert following.stdout is not None
        assert _read_until(following.stdout.fileno(), b"19\n") == b"18\n19\n"
        run.write(b"20\n")
        run.finish()
        assert following.communicate(timeout=60)[0] == b"20\n"
    assert home.run("logs", "-n", "0", "demo").stdout == b""


def test_memory_does_not_grow_with_the_log(home: AgentctlHome) -> None:
    """The end of 60 MiB, and all of them, take little more than the end of nothing."""
    with HeldRun(home, "small", segment_bytes=16 << 20) as run:
        run.write(b"x\n")
    with HeldRun(home, "big", segment_bytes=16 << 20) as run:
        for _ in range(60):
            run.write((b"y" * 1023 + b"\n") * 1024)
    small = _peak_kib(home, "logs", "-n", "2", "small")
    assert _peak_kib(home, "logs", "-n", "2", "big") < small + (8 << 10)
    assert _peak_kib(home, "logs", "big") < small + (8 << 10)


def _peak_kib(home: AgentctlHome, *arguments: str) -> int:
    process = subprocess.Popen(
        home.argv(*arguments), env=home.environment, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_maxrss


def test_each_line_gets_its_time_and_stream(home: AgentctlHome) -> None:
    """Lines of the two streams do not mix, even if their pieces do."""
    with HeldRun(home, "demo") as run:
        run.write(b"first ")
        run.write(b"warning\n", "stderr")
        run.write(b"half\nlast")
    lines = home.run("logs", "--timestamps", "demo").out.splitlines()
    assert [line[24:] for line in lines] == [" err  warning", " out  first half", " out  last"]
    assert all(line[10] == "T" and line[23] == "Z" for line in lines)


def test_what_cannot_be_read_is_told(home: AgentctlHome) -> None:
    """A hole in the log is a warning on stderr, not a silent gap."""
    with HeldRun(home, "demo", segment_bytes=200) as run:
        for number in range(20):
            run.write(b"line %d\n" % number)
    victim: Path = sorted(run.directory.path.glob("0*.log"))[3]
    aside = victim.rename(victim.with_name("aside"))
    done = home.run("logs", "demo")
    assert (done.code, "segment 4 is missing" in done.err) == (0, True)
    assert done.err.startswith(f"warning: {run.id}: ")
    assert done.stdout.startswith(b"line 0\n")
    assert done.stdout.endswith(b"line 19\n")
    # The end does not need what is missing.
    assert home.run("logs", "-n", "1", "demo").err == ""
    aside.rename(victim)


# --- on a terminal ------------------------------------------------------------


def _on_terminal(home: AgentctlHome, *arguments: str, **environment: str) -> bytes:
    """What a terminal gets from a command; it changes nothing on the way."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    process = subprocess.Popen(
        home.argv(*arguments),
        env={**home.environment, "TERM": "xterm", **environment},
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    data = _read_until(ours, b"no such end")
    os.close(ours)
    assert process.stderr is not None
    assert (process.stderr.read(), process.wait()) == (b"", 0)
    process.stderr.close()
    return data


def test_a_terminal_gets_text_and_colours_only(home: AgentctlHome) -> None:
    """Clipboard, title, cursor and screen are not reached; a pipe and --raw get the bytes."""
    with HeldRun(home, "demo") as run:
        run.write(_EVIL)
    assert _on_terminal(home, "logs", "demo").decode() == _SHOWN
    assert _on_terminal(home, "logs", "demo", NO_COLOR="1").decode() == _SHOWN.replace(
        "\x1b[1;31m", ""
    ).replace("\x1b[0m", "")
    assert _on_terminal(home, "logs", "--raw", "demo") == _EVIL
    assert home.run("logs", "demo").stdout == _EVIL


def test_the_pieces_in_which_a_sequence_comes_change_nothing() -> None:
    """Cut at every place, and byte for byte, the text is the same."""
    for at in range(len(_EVIL) + 1):
        harmless = HarmlessOutput(colours=True)
        assert harmless.feed(_EVIL[:at]) + harmless.feed(_EVIL[at:]) + harmless.end() == _SHOWN, at
    harmless = HarmlessOutput(colours=True)
    assert "".join(harmless.feed(bytes([one])) for one in _EVIL) + harmless.end() == _SHOWN


def test_what_has_no_end_keeps_no_memory_and_hides_nothing() -> None:
    """A string that is never ended is given up; a colour that is left on is taken back."""
    harmless = HarmlessOutput(colours=True)
    assert harmless.feed(b"\x1b[7mx") == "\x1b[7mx"
    for _ in range(100):
        harmless.feed(b"\x1b]52;" + b"y" * 4096)
    assert len(harmless._kept) <= 1 << 16
    assert harmless.feed(b"\nseen\n").endswith("\nseen\n")
    assert harmless.end() == "\x1b[0m"


# --- slips -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "whose output"),
        (["a", "b"], 2, "whose output"),
        (["-n", "-1", "a"], 2, "-n"),
        (["-n", "x", "a"], 2, "not a number"),
        (["--raw", "--timestamps", "a"], 2, "exclude each other"),
        (["--folow", "a"], 2, "--folow"),
        (["nosuch"], 4, "no such run"),
    ],
)
def test_a_slip_is_one_error_with_a_hint(
    home: AgentctlHome, arguments: list[str], code: int, said: str
) -> None:
    """As everywhere."""
    done = home.run("logs", *arguments)
    assert (done.code, done.stdout) == (code, b"")
    assert [line.partition(":")[0] for line in done.err.splitlines()] == ["error", "hint"]
    assert said in done.err
