"""What every attack needs: facts of the host, the kernel, and one line that says how it went.

An attack is a program beside this file that calls `attempt` with its variants.  It needs
nothing but the standard library and is run as ``python -ESs ATTACK.py FACTS``; what the
facts are says `Plant` in ``tests/support/agentctl_testkit/attacks.py``.

A variant *worked* if it returns: so it looks at its effect first, and raises `OSError` or
`Blocked` if there was none.  What it returns is the evidence; what it read from a secret
belongs there.  It raises `Impossible` where this machine or this caller cannot show it even
without a sandbox.  Each runs in a fork of its own, in order, for at most `PATIENCE_S`.
"""

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

FACTS: dict[str, Any] = json.loads(sys.argv[1])
PATIENCE_S = 5.0
_AT_FDCWD = -100
_AT_SYMLINK_FOLLOW = 0x400

libc = ctypes.CDLL(None, use_errno=True)


class Blocked(Exception):  # noqa: N818 - a verdict
    """It did not work, and no errno says why."""


class Impossible(Exception):  # noqa: N818 - see above
    """It cannot be shown here, with or without a sandbox; the text says why."""


def checked(result: int) -> int:
    """*result* of a C function that gives -1 and errno.

    Raises:
        OSError: it failed.
    """
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def syscall(number: int, *arguments: object) -> int:
    """A system call by number; ints, bytes and ctypes objects.

    Raises:
        OSError: it failed.
    """
    return checked(
        libc.syscall(
            ctypes.c_long(number),
            *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments),
        )
    )


def link_descriptor(descriptor: int, path: str) -> None:
    """Give the file of *descriptor* the name *path*.

    Raises:
        OSError: it failed.
    """
    # os.link would take the link in /proc for the file.
    name = f"/proc/self/fd/{descriptor}".encode()
    checked(libc.linkat(_AT_FDCWD, name, _AT_FDCWD, path.encode(), _AT_SYMLINK_FOLLOW))


def only_root() -> None:
    """Raise `Impossible` unless the caller is root, whatever this process is now."""
    if FACTS["caller"] != "root":
        raise Impossible("only root can do this")


@contextlib.contextmanager
def may_lack(what: str, *numbers: int) -> Iterator[None]:
    """Raise `Impossible` if, without a sandbox, one of the errors says that *what* is not here."""
    try:
        yield
    except OSError as error:
        if error.errno in numbers and FACTS["level"] == "outside":
            raise Impossible(f"no {what} here") from None
        raise


def attempt(variants: dict[str, Callable[[], object]]) -> NoReturn:
    """Try all *variants* and print one JSON object; see `agentctl_testkit.attacks.Outcome`."""
    said = {name: _in_a_fork(act) for name, act in variants.items()}
    verdicts = {verdict for verdict, _, _ in said.values()}
    overall = next(v for v in ("broken", "open", "blocked", "impossible") if v in verdicts)
    line = {
        "attack": overall,
        "detail": "; ".join(f"{name}: {detail}" for name, (_, detail, _) in said.items()),
        "evidence": {name: told for name, (_, _, told) in said.items() if told},
        "variants": {name: verdict for name, (verdict, _, _) in said.items()},
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    os._exit(0)


def _in_a_fork(act: Callable[[], object]) -> tuple[str, str, str]:
    """Verdict, detail and evidence of *act*."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        os.write(theirs, json.dumps(_outcome(act)).encode())
        os._exit(0)
    os.close(theirs)
    data = b""
    until = time.monotonic() + PATIENCE_S
    while select.select([ours], [], [], max(0.0, until - time.monotonic()))[0]:
        piece = os.read(ours, 65536)
        data += piece
        if not piece:
            break
    else:
        os.kill(child, signal.SIGKILL)
    os.close(ours)
    _, status = os.waitpid(child, 0)
    if data:
        verdict, detail, evidence = json.loads(data)
        return verdict, detail, evidence
    if os.WIFSIGNALED(status):
        return "blocked", signal.Signals(os.WTERMSIG(status)).name, ""
    return "blocked", f"exit {os.waitstatus_to_exitcode(status)}", ""


def _outcome(act: Callable[[], object]) -> tuple[str, str, str]:
    try:
        evidence = act()
    except Blocked as error:
        return "blocked", str(error), ""
    except Impossible as error:
        return "impossible", str(error), ""
    except OSError as error:
        if error.errno == errno.ENOSYS and FACTS["level"] == "outside":
            return "impossible", "not in this kernel", ""
        return "blocked", errno.errorcode.get(error.errno or 0, str(error)), ""
    except BaseException as error:
        # Neither: the attack itself is wrong.
        return "broken", f"{type(error).__name__}: {error}"[:500], ""
    return "open", "worked", "" if evidence is None else str(evidence)[:2000]
