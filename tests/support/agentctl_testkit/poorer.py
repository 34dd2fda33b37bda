"""A poorer machine for one program: ``python poorer.py KIND [UID] -- ARGV...``.

Whatever a container or a cautious administrator takes away is taken away for real, by the
kernel's own means, before ARGV is executed, as UID if one is given.  What is prepared by root
is so before the uid is given up.

* ``container``: docker's default choice of capabilities, and a seccomp filter that refuses
  namespaces and mounts with EPERM, and clone3 with ENOSYS;
* ``capable-container``: only those capabilities, and three more: SYS_ADMIN, NET_ADMIN, SYS_PTRACE;
* ``no-landlock``: its calls answer ENOSYS;
* ``no-user-namespaces``: ``user.max_user_namespaces`` is 0;
* ``masked-proc``: a file of ``/proc`` is covered, as container runtimes do it;
* ``rootless-root``: uid 0 of a user namespace that knows no other uid;
* ``same``: nothing is taken away.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

KINDS: Final = (
    "container",
    "capable-container",
    "no-landlock",
    "no-user-namespaces",
    "masked-proc",
    "rootless-root",
    "same",
)

_EPERM: Final = 1
_ENOSYS: Final = 38
_X86_64: Final = 0xC000_003E
_ALLOW: Final = 0x7FFF_0000
_ERRNO: Final = 0x0005_0000
_NEW_NAMESPACES: Final = 0x7E02_0080  # every CLONE_NEW*
_NEW_MOUNTS: Final = 0x0002_0000
_NEW_USER: Final = 0x1000_0000
_BIND: Final = 4096
_PRIVATE: Final = 1 << 18 | 16384

_MOUNTS: Final = (165, 166, 155, 428, 429, 430, 431, 432, 433, 442)  # mount ... mount_setattr
_UNSHARE, _SETNS, _CLONE, _CLONE3 = 272, 308, 56, 435
_LANDLOCK: Final = (444, 445, 446)

#: docker's default, by number: capabilities(7).
_DOCKER: Final = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31})
_SYS_PTRACE, _SYS_ADMIN, _NET_ADMIN = 19, 21, 12
_LAST_CAPABILITY: Final = 40

_libc: Final = ctypes.CDLL(None, use_errno=True)


def argv(kind: str, *command: str, uid: int | None = None) -> list[str]:
    """The command line that executes *command* on a poorer machine."""
    user = [] if uid is None else [str(uid)]
    return [sys.executable, "-I", __file__, kind, *user, "--", *command]


def _container() -> None:
    _bound(_DOCKER)
    refused = dict.fromkeys((*_MOUNTS, _UNSHARE, _SETNS), _EPERM)
    _filter({**refused, _CLONE3: _ENOSYS}, masked={_CLONE: (_NEW_NAMESPACES, _EPERM)})


def _capable_container() -> None:
    _bound(_DOCKER | {_SYS_PTRACE, _SYS_ADMIN, _NET_ADMIN})


def _no_landlock() -> None:
    _filter(dict.fromkeys(_LANDLOCK, _ENOSYS))


def _no_user_namespaces() -> None:
    _in_user_namespace(lambda uid: uid)
    Path("/proc/sys/user/max_user_namespaces").write_bytes(b"0")


def _rootless_root() -> None:
    _in_user_namespace(lambda _: 0)


def _masked_proc() -> None:
    _check(_libc.unshare(_NEW_MOUNTS))
    _check(_libc.mount(b"none", b"/", None, ctypes.c_ulong(_PRIVATE), None))
    _check(_libc.mount(b"/dev/null", b"/proc/timer_list", None, ctypes.c_ulong(_BIND), None))


_ACTS: Final[Mapping[str, Callable[[], None]]] = {
    "container": _container,
    "capable-container": _capable_container,
    "no-landlock": _no_landlock,
    "no-user-namespaces": _no_user_namespaces,
    "masked-proc": _masked_proc,
    "rootless-root": _rootless_root,
    "same": lambda: None,
}
_AFTER_THE_UID: Final = ("no-landlock", "no-user-namespaces", "rootless-root")


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _in_user_namespace(inner: Callable[[int], int]) -> None:
    uid, gid = os.geteuid(), os.getegid()
    _check(_libc.prctl(4, 1, 0, 0, 0))  # PR_SET_DUMPABLE: the files below are ours only then
    _check(_libc.unshare(_NEW_USER))
    Path("/proc/self/setgroups").write_bytes(b"deny")
    Path("/proc/self/uid_map").write_bytes(b"%d %d 1" % (inner(uid), uid))
    Path("/proc/self/gid_map").write_bytes(b"%d %d 1" % (inner(gid), gid))


def _bound(kept: frozenset[int]) -> None:
    """Take all but *kept* out of the bounding set, where we may: an exec then has no more."""
    for capability in range(_LAST_CAPABILITY + 1):
        if capability not in kept:
            _libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def _filter(
    refused: Mapping[int, int], masked: Mapping[int, tuple[int, int]] | None = None
) -> None:
    """Let calls fail: by number; or by number and a bit of the first argument."""
    code = [_jump(0x20, 0, 0, 4), _jump(0x15, 1, 0, _X86_64), _jump(0x06, 0, 0, _ALLOW)]
    code.append(_jump(0x20, 0, 0, 0))  # the number
    for number, error in refused.items():
        code += [_jump(0x15, 0, 1, number), _jump(0x06, 0, 0, _ERRNO | error)]
    for number, (mask, error) in (masked or {}).items():
        code += [
            _jump(0x15, 0, 3, number),
            _jump(0x20, 0, 0, 16),  # the low half of the first argument
            _jump(0x45, 0, 1, mask),
            _jump(0x06, 0, 0, _ERRNO | error),
        ]
        # The accumulator holds the argument, so nothing can follow but the end.
    code.append(_jump(0x06, 0, 0, _ALLOW))
    program = ctypes.create_string_buffer(b"".join(code), 8 * len(code))
    pointer = struct.pack("@HP", len(code), ctypes.addressof(program))
    # As root without no_new_privs, as container runtimes do it.
    if os.geteuid() != 0:
        _check(_libc.prctl(38, 1, 0, 0, 0))
    _check(_libc.prctl(22, 2, ctypes.create_string_buffer(pointer, len(pointer)), 0, 0))


def _jump(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def main() -> None:
    """Take away, and execute."""
    split = sys.argv.index("--")
    kind, *user = sys.argv[1:split]
    command = sys.argv[split + 1 :]

    def give_up_root() -> None:
        if user:
            os.setgroups([])
            os.setresgid(int(user[0]), int(user[0]), int(user[0]))
            os.setresuid(int(user[0]), int(user[0]), int(user[0]))

    if kind in _AFTER_THE_UID:
        give_up_root()
        _ACTS[kind]()
    else:
        _ACTS[kind]()
        give_up_root()
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
