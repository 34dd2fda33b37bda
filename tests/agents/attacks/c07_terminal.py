"""Type into a terminal as if a person had, or change how it works: refused, each of it.

TIOCSTI puts bytes into the input of a terminal; where a shell reads from it, that is a
command (CVE-2017-5226).  The kernel reads 32 bits of the request, and a filter that compares
64 sees another one (CVE-2019-10063).
"""

import array
import ctypes
import errno
import fcntl
import os
import struct
import termios

from attempt import FACTS, Blocked, attempt, may_lack, only_root, syscall

_IOCTL = 16
_HIGH_BIT = 1 << 32
_TIOCLINUX, _TIOCSETD, _TIOCGETD = 0x541C, 0x5423, 0x5424
_FOREGROUND_CONSOLE = b"\x0c"
_NO_DISCIPLINE = 27  # N_NULL: read and write fail
_TYPED = b"x"


def _own_terminal() -> int:
    """A terminal of a session of our own."""
    os.setsid()
    _, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    return slave


def _planted_terminal() -> int:
    os.setsid()
    # Without a controlling terminal, this becomes it.
    return os.open(FACTS["terminal"], os.O_RDWR)


def _type(terminal: int, request: int) -> str:
    before = _waiting(terminal)
    # dev.tty.legacy_tiocsti=0 (Linux 6.2) leaves it to those with CAP_SYS_ADMIN.
    with may_lack("TIOCSTI for this user", errno.EIO):
        syscall(_IOCTL, terminal, request, _TYPED)
    waiting = _waiting(terminal)
    if waiting <= before:
        raise Blocked(f"{waiting} bytes wait to be read")
    return f"{waiting} bytes that nobody typed"


def _waiting(terminal: int) -> int:
    mode = termios.tcgetattr(terminal)
    mode[3] &= ~termios.ICANON
    termios.tcsetattr(terminal, termios.TCSANOW, mode)
    count = array.array("i", [0])
    fcntl.ioctl(terminal, termios.FIONREAD, count)
    return count[0]


def into_its_own() -> str:
    return _type(_own_terminal(), termios.TIOCSTI)


def into_its_own_with_high_bits() -> str:
    return _type(_own_terminal(), _HIGH_BIT | termios.TIOCSTI)


def into_the_callers() -> str:
    return _type(_planted_terminal(), termios.TIOCSTI)


def onto_the_callers() -> str:
    """Terminals obey what is written to them, too."""
    text = b"\x1b]0;written by an attack\x07"
    if os.write(os.open(FACTS["terminal"], os.O_WRONLY | os.O_NOCTTY), text) != len(text):
        raise Blocked("not written")
    return "an escape sequence on the caller's terminal"


def from_the_callers() -> str:
    """What somebody typed there, say a password."""
    terminal = os.open(FACTS["terminal"], os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    return os.read(terminal, 256).decode()


def inherited() -> str:
    """Through what the run was started with: there is no terminal among it."""
    for number in range(3):
        if os.isatty(number):
            return _type(number, termios.TIOCSTI)
    if FACTS["level"] == "outside":
        os.dup2(_own_terminal(), 0)
        return _type(0, termios.TIOCSTI)
    raise Blocked("no terminal at 0, 1 and 2")


def controlling() -> str:
    if FACTS["level"] == "outside":
        os.close(_own_terminal())
    return _type(os.open("/dev/tty", os.O_RDWR), termios.TIOCSTI)


def _discipline(request: int) -> str:
    terminal = _own_terminal()
    syscall(_IOCTL, terminal, request, ctypes.byref(ctypes.c_int(_NO_DISCIPLINE)))
    (now,) = struct.unpack("i", fcntl.ioctl(terminal, _TIOCGETD, bytes(4)))
    if now != _NO_DISCIPLINE:
        raise Blocked(f"discipline {now}")
    return f"the terminal has discipline {now}"


def discipline() -> str:
    """Each is a module that the kernel loads for whoever asks; some had holes."""
    with may_lack("line discipline N_NULL", errno.EINVAL):
        return _discipline(_TIOCSETD)


def discipline_with_high_bits() -> str:
    with may_lack("line discipline N_NULL", errno.EINVAL):
        return _discipline(_HIGH_BIT | _TIOCSETD)


def console() -> str:
    """Selections of the virtual console can be pasted into it."""
    only_root()
    with may_lack("virtual console", errno.ENOENT, errno.ENXIO, errno.ENOTTY, errno.EIO):
        terminal = os.open("/dev/tty1", os.O_RDWR | os.O_NOCTTY)
        return f"console {syscall(_IOCTL, terminal, _TIOCLINUX, _FOREGROUND_CONSOLE)} is in front"


attempt(
    {
        "own": into_its_own,
        "own_high_bits": into_its_own_with_high_bits,
        "callers": into_the_callers,
        "callers_input": from_the_callers,
        "callers_output": onto_the_callers,
        "inherited": inherited,
        "controlling": controlling,
        "discipline": discipline,
        "discipline_high_bits": discipline_with_high_bits,
        "console": console,
    }
)
