"""Enters a Landlock domain, tries what it may still do, and says what the kernel answered.

Its argument is JSON: ``uid`` (whom to become first, or null), ``abi`` (the version to take
this kernel for, or null), ``domain`` (arguments of `landlock.restrict`, null for no domain,
``"shut_in"`` for the keepers' seal), ``acts`` (each a name of `ACTS` with its arguments) and
``prove`` (arguments of `landlock.prove`, or null).  Prints JSON: ``words``, what restrict
returned or the name of its error; ``outcomes``, for each act ``ok`` or the name of the error;
``proof``, the same, or the name of an exception.
"""

import ctypes
import errno
import fcntl
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any, Final

from agentctl_child.sandbox import landlock, prctl
from agentctl_protocol.vocabulary import Network

libc = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE, PTRACE_DETACH = 0x4206, 17
RNDGETENTCNT = 0x8004_5200
_outsider = 0


def opened(path: str, flags: int) -> None:
    os.close(os.open(path, flags | os.O_CLOEXEC, 0o600))


def executed(path: str) -> None:
    os.execv(path, [path])


def bound(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)


def reached(address: str) -> None:
    """Connect to a socket: a path, or an abstract name with ``@`` for its first byte."""
    with socket.socket(socket.AF_UNIX) as visitor:
        visitor.connect(address.replace("@", "\0", 1) if address[0] == "@" else address)


def bound_tcp(port: str) -> None:
    with socket.socket() as door:
        door.bind(("127.0.0.1", int(port)))


def connected_tcp(port: str) -> None:
    with socket.socket() as visitor:
        visitor.connect(("127.0.0.1", int(port)))


def ioctl(path: str) -> None:
    with open(path, "rb", buffering=0) as device:
        fcntl.ioctl(device, RNDGETENTCNT, bytes(4))


def truncated(path: str) -> None:
    if libc.truncate(os.fsencode(path), ctypes.c_long(0)) == -1:
        raise OSError(ctypes.get_errno(), "")


def traced() -> None:
    if libc.ptrace(PTRACE_SEIZE, _outsider, None, None) == -1:
        raise OSError(ctypes.get_errno(), "")


ACTS: Final[dict[str, Callable[..., object]]] = {
    "read_file": lambda path: opened(path, os.O_RDONLY),
    "read_dir": os.listdir,
    "execute": executed,
    "write_file": lambda path: opened(path, os.O_WRONLY),
    "append": lambda path: opened(path, os.O_WRONLY | os.O_APPEND),
    "make_reg": lambda path: opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    "make_unnamed": lambda path: opened(path, os.O_WRONLY | os.O_TMPFILE),
    "make_dir": os.mkdir,
    "make_sym": lambda path: os.symlink("x", path),
    "make_fifo": os.mkfifo,
    "make_sock": bound,
    "make_char": lambda path: os.mknod(path, 0o020666, os.makedev(1, 3)),
    "make_block": lambda path: os.mknod(path, 0o060666, os.makedev(7, 200)),
    "remove_file": os.unlink,
    "remove_dir": os.rmdir,
    "rename": os.rename,
    "link": os.link,
    "truncate": truncated,
    "empty_read_only": lambda path: opened(path, os.O_RDONLY | os.O_TRUNC),
    "ioctl_dev": ioctl,
    "resolve_unix": reached,
    "abstract_unix": reached,
    "bind_tcp": bound_tcp,
    "connect_tcp": connected_tcp,
    "signal": lambda: os.kill(_outsider, 0),
    "ptrace": traced,
    # Known to be left alone by Landlock.
    "chmod": lambda path: os.chmod(path, 0o777),
    "utime": os.utime,
    "stat": os.stat,
}


def outsider_process() -> int:
    """A process of our uid that is not in the domain.

    It ends with us by a pipe: to the outside, not even a parent-death signal leaves a scope.
    """
    ended, living = os.pipe()  # ours is the only end for writing, and nobody executes with it
    pid = os.fork()
    if pid == 0:
        os.closerange(0, 3)
        os.close(living)
        os.read(ended, 1)
        os._exit(0)
    return pid


def outcome(act: Callable[..., object], arguments: list[str]) -> str:
    child = os.fork()
    if child == 0:
        try:
            act(*arguments)
        except OSError as error:
            os._exit(error.errno or 255)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return errno.errorcode.get(code, str(code)) if code else "ok"


def enter(domain: Any) -> tuple[str, ...] | str:
    try:
        if domain == "shut_in":
            landlock.shut_in()
            return ()
        paths = {name: [os.fsencode(path) for path in domain[name]] for name in domain["paths"]}
        readable, writable = paths.pop("readable", None), paths.pop("writable")
        network = Network(domain["network"])
        return landlock.restrict(readable, writable, network=network, **paths)
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def proof(told: Any) -> str:
    closed = os.fsencode(told["closed"]) if told["closed"] else None
    try:
        landlock.prove(closed=closed, outsider=_outsider)
    except landlock.NotEnforcedError:
        return "NotEnforcedError"
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "ok"


if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    if order["uid"] is not None:
        os.setgroups([])
        os.setresgid(order["uid"], order["uid"], order["uid"])
        os.setresuid(order["uid"], order["uid"], order["uid"])
        prctl.set_dumpable(True)  # for the outsider: it may be traced
    _outsider = outsider_process()
    if order["abi"] is not None:
        landlock.abi = lambda: order["abi"]  # type: ignore[assignment]
    prctl.forbid_new_privileges()
    found: dict[str, Any] = {"words": [], "proof": None}
    if order["domain"] is not None:
        found["words"] = enter(order["domain"])
    found["outcomes"] = [outcome(ACTS[name], arguments) for name, *arguments in order["acts"]]
    if order["prove"] is not None:
        found["proof"] = proof(order["prove"])
    print(json.dumps(found))
