"""A terminal for tests: a pty with a program on it, and an emulator that shows what it shows.

The emulator knows what the command line and its tests use, and fails on anything else: a
sequence that it does not know is one that nobody meant to send.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

# A control character in a sequence is obeyed, and the sequence goes on (DEC STD 070).
_CONTROL: Final = re.compile(
    rb"\x1b(?P<before>[\x00-\x17\x19\x1c-\x1f]*)(?:"
    rb"\[(?P<parameters>[0-?\x00-\x17\x19\x1c-\x1f]*)[ -/]*(?P<final>[@-~])"
    rb"|\].*?(?:\x07|\x1b\\)"
    rb"|(?P<escape>[^\[\]\x00-\x1f])"
    rb")",
    re.DOTALL,
)
_CONTROLS: Final = bytes(range(32))
_ON: Final = b"h"
_CANCEL: Final = b"\x18"

_UNSET: Final = frozenset({"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"})

CTRL_C: Final = b"\x03"
CTRL_D: Final = b"\x04"
CTRL_Z: Final = b"\x1a"


class Emulator:
    """What a terminal of *columns* and *rows* shows; ``modes`` are the private modes that are on.

    ``wraps`` is how often a line was broken.  *strict*: a sequence that it does not know is
    an error.
    """

    def __init__(self, columns: int = 80, rows: int = 24, *, strict: bool = True) -> None:
        self._strict = strict
        self.columns = columns
        self.rows = rows
        self.modes = {7, 25}
        self.attributes: set[str] = set()
        self.wraps = 0
        self._scrolled: list[str] = []
        self._screen = [""]
        self._row = 0
        self._column = 0
        self._main: tuple[list[str], int, int] | None = None
        self._rest = b""

    def __repr__(self) -> str:
        return f"<Emulator {self.lines()[-3:]}>"

    def feed(self, data: bytes) -> None:
        """Show *data*."""
        data, self._rest = self._rest + data, b""
        at = 0
        while at < len(data):
            byte = data[at : at + 1]
            if byte == b"\x1b":
                match = _CONTROL.match(data, at)
                cancel = data.find(_CANCEL, at, None if match is None else match.end())
                if cancel >= 0:
                    at = cancel + 1
                    continue
                if match is None:
                    again = data.find(b"\x1b", at + 1)
                    if again < 0 or data[at + 1 : at + 2] == b"]":
                        self._rest = data[at:]
                        return
                    at = again  # an escape in a sequence begins another one
                    continue
                self._control(match)
                at = match.end()
                continue
            end = next((i for i in range(at, len(data)) if data[i] < 32), len(data))
            if end == at:
                self._byte(byte)
                at += 1
                continue
            for character in data[at:end].decode("utf-8", "replace"):
                self._put(character)
            at = end

    def lines(self) -> list[str]:
        """All lines, those that scrolled away included, without blanks at their ends."""
        lines = [line.rstrip() for line in [*self._scrolled, *self._screen]]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def line(self) -> str:
        """The line that the cursor is on."""
        return self._screen[self._row].rstrip()

    @property
    def column(self) -> int:
        """Where in its line the cursor is, from 0."""
        return self._column

    def is_as_new(self) -> bool:
        """Whether typing at it works as on a terminal that was just opened."""
        return self.modes == {7, 25} and not self.attributes and self._main is None

    def _byte(self, byte: bytes) -> None:
        match byte:
            case b"\r":
                self._column = 0
            case b"\n":
                # The line discipline returns the carriage (ONLCR in termios(3)).
                self._column = 0
                self._down()
            case b"\b":
                self._column = max(self._column - 1, 0)
            case b"\t":
                self._column = min(self._column // 8 * 8 + 8, self.columns - 1)
            case b"\x07":
                pass
            case _:
                self._unknown(byte)

    def _put(self, character: str) -> None:
        if self._column >= self.columns:
            self.wraps += 1
            self._column = 0
            self._down()
        line = self._screen[self._row].ljust(self._column)
        self._screen[self._row] = line[: self._column] + character + line[self._column + 1 :]
        self._column += 1

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._screen):
            self._screen.append("")
        if self._row == self.rows:
            self._scrolled.append(self._screen.pop(0))
            self._row -= 1

    def _control(self, match: re.Match[bytes]) -> None:
        final, parameters = match["final"], match["parameters"] or b""
        for byte in match["before"] + parameters:
            if byte < 32:
                self._byte(bytes([byte]))
        if final is not None:
            self._obey(final, parameters.translate(None, _CONTROLS))
        elif match["escape"] not in (None, b"\\"):
            self._unknown(match[0])

    def _obey(self, final: bytes, parameters: bytes) -> None:
        line = self._screen[self._row]
        match final:
            case b"m":
                for number in parameters.split(b";"):
                    self._set_attribute(int(number or 0))
            case b"h" | b"l" if parameters.startswith(b"?"):
                for mode in parameters[1:].split(b";"):
                    self._set_mode(int(mode), on=final == _ON)
            case b"K":
                self._screen[self._row] = line[: self._column]
            case b"J" if parameters in (b"", b"0"):
                self._screen[self._row] = line[: self._column]
                del self._screen[self._row + 1 :]
            case b"J" if parameters == b"2":
                self._screen = [""] * (self._row + 1)
            case b"H":
                row, _, column = parameters.partition(b";")
                self._row, self._column = int(row or 1) - 1, int(column or 1) - 1
                self._screen += [""] * (self._row + 1 - len(self._screen))
            case b"A":
                self._row = max(self._row - int(parameters or 1), 0)
            case _:
                self._unknown(parameters + final)

    def _unknown(self, sequence: bytes) -> None:
        assert not self._strict, f"not known to this terminal: {sequence!r}"

    def _set_attribute(self, number: int) -> None:
        match number:
            case 0:
                self.attributes.clear()
            case 1 | 2:
                self.attributes.add("weight")
            case 22:
                self.attributes.discard("weight")
            case 39:
                self.attributes.discard("colour")
            case _:
                self.attributes.add("colour")

    def _set_mode(self, mode: int, *, on: bool) -> None:
        if mode == 1049 and on and self._main is None:
            self._main = self._screen, self._row, self._column
            self._screen, self._row, self._column = [""], 0, 0
        elif mode == 1049 and not on:
            # Whoever leaves the screen that is not there moves the cursor of the one that is.
            assert self._main is not None, "left an alternate screen that was not entered"
            (self._screen, self._row, self._column), self._main = self._main, None
        if on:
            self.modes.add(mode)
        else:
            self.modes.discard(mode)


class Terminal:
    """*argv* on a terminal of its own, as its session's leader, until the block ends.

    ``transcript`` is every byte that came, ``shown`` an emulator that shows them.
    ``stderr`` or ``stdout``, if given, is a descriptor to use instead of the terminal.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        columns: int = 80,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        self._master, slave = os.openpty()
        self.name: Final = os.ttyname(slave)
        self._poll = select.poll()
        self._poll.register(self._master, select.POLLIN)
        self.transcript = b""
        self.shown = Emulator(columns)
        self.resize(columns)
        # A session leader without a terminal gets the one that it opens (tty_ioctl(4)).
        adopt = 'tty=$1; shift; exec "$@" <"$tty"'
        try:
            self.process = subprocess.Popen(
                ["sh", "-c", adopt, "sh", self.name, *argv],
                env={k: v for k, v in os.environ.items() if k not in _UNSET}
                | {"TERM": "xterm-256color"}
                | dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=slave if stdout is None else stdout,
                stderr=slave if stderr is None else stderr,
                start_new_session=True,
            )
        finally:
            os.close(slave)

    def __repr__(self) -> str:
        return f"<Terminal {self.name}: {self.transcript[-200:]!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        self.hang_up()

    def resize(self, columns: int) -> None:
        """Make it *columns* wide."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        self.shown.columns = columns

    def type(self, keys: bytes) -> None:
        """Press *keys*, such as `CTRL_C`."""
        os.write(self._master, keys)

    def hang_up(self) -> None:
        """Close the terminal under whatever runs on it."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def wait_until(self, condition: Callable[[], bool], what: str, within_s: float = 20.0) -> None:
        """Read until *condition* holds.

        Raises:
            AssertionError: it does not after *within_s* seconds, or nothing more will come.
        """
        deadline = time.monotonic() + within_s
        while not condition():
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not self._read(left_s):
                raise AssertionError(f"no {what} in {self.transcript.decode(errors='replace')!r}")

    def wait_for(self, text: str, within_s: float = 20.0) -> None:
        """Read until *text* has come since the last call of this."""
        begin = getattr(self, "_heard", 0)
        encoded = text.encode()
        self.wait_until(lambda: encoded in self.transcript[begin:], repr(text), within_s)
        self._heard = self.transcript.index(encoded, begin) + len(encoded)

    def finish(self, within_s: float = 20.0) -> int:
        """Read to the end; the program's exit code."""
        deadline = time.monotonic() + within_s
        while self._read(max(deadline - time.monotonic(), 0.0)):
            pass
        return self.process.wait(timeout=max(deadline - time.monotonic(), 0.1))

    def read_for(self, seconds: float) -> bytes:
        """What comes in the next *seconds*."""
        begin, deadline = len(self.transcript), time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0 and self._read(left_s):
            pass
        return self.transcript[begin:]

    def _read(self, within_s: float) -> bool:
        """Take in what comes; False at the end, or when nothing comes within *within_s*."""
        if not self._poll.poll(within_s * 1000):
            return False
        data = b""
        # EIO: nobody has the other end any more.
        with contextlib.suppress(OSError):
            data = os.read(self._master, 1 << 16)
        self.transcript += data
        self.shown.feed(data)
        return bool(data)


@dataclasses.dataclass(frozen=True)
class Transcript:
    """What one command said: ``out`` and ``err``, or on a terminal all of it in ``out``."""

    code: int
    out: bytes
    err: bytes


def transcripts(
    commands: Sequence[Sequence[str]], environment: Mapping[str, str], *, on_terminal: bool
) -> list[Transcript]:
    """Run many ``agentctl`` commands, one after the other, on pipes or on terminals of 80 columns.

    One interpreter has everything imported, and forks for each of them.
    """
    done = subprocess.run(
        [sys.executable, "-c", _FORKER],
        input=json.dumps({"commands": commands, "terminal": on_terminal}).encode(),
        stdout=subprocess.PIPE,
        env={key: text for key, text in os.environ.items() if key not in _UNSET}
        | {"TERM": "xterm-256color"}
        | dict(environment),
        check=True,
        timeout=120,
    )
    return [
        Transcript(code, bytes.fromhex(out), bytes.fromhex(err))
        for code, out, err in json.loads(done.stdout)
    ]


_FORKER: Final = r"""
import fcntl, importlib, json, os, pkgutil, select, struct, sys, termios
from agentctl_supervisor import cli
for module in pkgutil.iter_modules(cli.__path__):
    importlib.import_module(f"agentctl_supervisor.cli.{module.name}")

def read_all(*fds):
    got, left = {fd: b"" for fd in fds}, set(fds)
    while left:
        for fd in select.select(left, [], [])[0]:
            try:
                data = os.read(fd, 65536)
            except OSError:  # nobody has the other end of the pty any more
                data = b""
            got[fd] += data
            if not data:
                left.discard(fd)
    return [got[fd] for fd in fds]

def speak(command, ends):
    os.setsid()
    for number, end in enumerate(ends):
        os.dup2(end, number)
    if os.isatty(1):
        fcntl.ioctl(1, termios.TIOCSCTTY, 0)
    os.closerange(3, 64)
    # The old ones remember what the descriptors were.
    sys.stdin, sys.stdout, sys.stderr = (open(n, "rww"[n], closefd=False) for n in range(3))
    code = 1
    try:
        code = cli.main(command)
        sys.stdout and sys.stdout.flush()
    finally:
        os._exit(code)

order = json.loads(sys.stdin.buffer.read())
said = []
for command in order["commands"]:
    null = os.open("/dev/null", os.O_RDWR)
    if order["terminal"]:
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
        ours, theirs = [master], [slave, slave, slave]
    else:
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        ours, theirs = [out, err], [null, out_end, err_end]
    pid = os.fork()
    if pid == 0:
        speak(command, theirs)
    for fd in {null, *theirs}:
        os.close(fd)
    texts = [*read_all(*ours), b""][:2]
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    said.append([code, *[text.hex() for text in texts]])
    for fd in ours:
        os.close(fd)
print(json.dumps(said))
"""
