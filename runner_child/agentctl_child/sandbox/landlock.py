"""Landlock: a barrier around files and processes that needs no privilege, landlock(7).

Two kinds of domain are made. `restrict` makes the domain of strict and standard: it handles every
right that the kernel's version knows, so everything is forbidden except what the rules allow.
`shut_in` makes the seal of an agent that shares a pid namespace with its keepers.

A domain of any kind (ABI 1, kernel 5.13) forbids ptrace-like access, such as writing
``/proc/<pid>/mem``, to processes outside it. From ABI 6 on (kernel 6.12) a process in it cannot
signal a process outside. Metadata is not restricted: chmod, utime, stat and the like need another
barrier, and so do sockets other than TCP's.
"""

import ctypes
import errno
import functools
import os
import stat
import struct
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from agentctl_child.sandbox import beneath, landlock_rights, syscalls
from agentctl_child.sandbox.landlock_rights import RIGHTS, SCOPES_SINCE, TCP_SINCE, Handled
from agentctl_protocol.vocabulary import Network

_ASK_VERSION: Final = 1
_SCOPE_SIGNAL: Final = 2
_PATH_BENEATH: Final = 1
_KEPT_FROM_WRITING: Final = "sys"


class NotEnforcedError(OSError):
    """The kernel has accepted a domain that does not hold."""


@functools.cache
def abi() -> int:
    """Return the Landlock version of this kernel; 0 if it has none or it is switched off."""
    try:
        return syscalls.syscall("landlock", syscalls.LANDLOCK_CREATE_RULESET, None, 0, _ASK_VERSION)
    except OSError:
        return 0


def has_scopes() -> bool:
    """Return True if both kinds of domain forbid signals to the outside on this kernel.

    From the same version on, `restrict` also forbids abstract sockets of the outside.
    """
    return abi() >= SCOPES_SINCE


def covers(right: str) -> bool:
    """Return True if `restrict` covers a right of `landlock_rights` here, such as ``truncate``."""
    return abi() >= RIGHTS[right].since


def restrict(
    readable: Iterable[bytes] | None,
    writable: Sequence[bytes],
    *,
    network: Network,
    own: Iterable[bytes] = (),
    devices: Iterable[bytes] = (),
    optional: Collection[bytes] = (),
) -> tuple[str, ...]:
    """Let this thread and its future children reach only these paths and what is beneath them.

    ``readable``: read, list, execute. None leaves reading, and truncation, to the mounts of a
    private root that holds nothing else. Checking them costs every open(2) a walk up to the root,
    a quarter of a microsecond. ``writable``: also all kinds of writing, but no new device nodes
    and FIFOs. ``own``: FIFOs, too. ``devices``: read, write, ioctl; device nodes, or a directory
    of them.

    Paths are absolute and have no symbolic link on them. Those in ``optional`` may be missing.
    ``network``: NONE forbids TCP. If an empty network namespace is the barrier, pass HOST.

    Returns words for a report: the version, what else it restricts, and, one by one, what later
    versions restrict and this one does not, such as ``landlock without truncate``. Needs
    no_new_privs. Afterwards mounts are always refused. Raises OSError if there is no Landlock, or
    if a path is missing or is a link.
    """
    version = abi()
    if not version:
        raise OSError(errno.EOPNOTSUPP, "landlock: the kernel has none, or it is switched off")
    reading = readable is not None
    handled = landlock_rights.handled(version, network, reading=reading)
    given = landlock_rights.grants(version)
    ruleset = _create(handled, version)
    try:
        for paths, rights in (
            (readable or (), given.readable),
            (writable, given.writable),
            (own, given.own),
            (devices, given.devices),
            # A socket that is given by its own path is meant to be used.
            (filter(_is_socket, writable) if given.sockets else (), given.sockets),
        ):
            for path in paths:
                _allow(ruleset, path, rights & handled.files, may_be_missing=path in optional)
        _enter(ruleset)
    finally:
        os.close(ruleset)
    words = [f"landlock abi {version}"]
    words += ["landlock scopes"] if handled.scopes else []
    words += ["landlock tcp"] if handled.tcp else []
    lacking = landlock_rights.lacking(version, network, reading=reading)
    return (*words, *(f"landlock without {name}" for name in lacking))


def prove(*, closed: bytes | None = None, outsider: int | None = None) -> None:
    """Try what `restrict` must have forbidden, because a domain cannot be read back.

    ``closed``: an existing file or directory that no rule covers, for reading. If its permissions
    forbid reading anyway, that proves nothing. ``outsider``: a process of our uid outside the
    domain; it is sent signal 0, if this version has the scope. Raises NotEnforcedError if the
    attempt worked, and OSError if it failed for another reason.
    """
    if closed is not None:
        try:
            os.close(os.open(closed, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY))
        except PermissionError:
            pass
        else:
            raise NotEnforcedError(errno.EPERM, "landlock: a file out of reach can be opened")
    if outsider is not None and has_scopes():
        try:
            os.kill(outsider, 0)
        except PermissionError:
            return
        raise NotEnforcedError(errno.EPERM, "landlock: a process out of reach can be signalled")


def shut_in() -> None:
    """Keep this process and its future children from their keepers. Needs no_new_privs.

    Forbids signals to the outside (ABI 6), and writing anywhere under /sys, where control groups
    are. A process that owns their files, as a user owns those that systemd delegates, could freeze
    its keepers. Other files and the network are not restricted. Raises OSError.
    """
    version = abi()
    rights = RIGHTS["write_file"].bit
    if version >= RIGHTS["refer"].since:
        # This right alone is refused unless it is given: without it, no rename or link from one
        # directory to another is possible.
        rights |= RIGHTS["refer"].bit
    scopes = _SCOPE_SIGNAL if has_scopes() else 0
    ruleset = _create(Handled(rights, 0, scopes), version)
    try:
        # Rules can only add: allow everything at the top except /sys.
        for name in os.listdir(b"/"):
            if name != _KEPT_FROM_WRITING.encode():
                _allow_whatever_it_is(ruleset, b"/" + name, rights)
        _enter(ruleset)
    finally:
        os.close(ruleset)


def _create(handled: Handled, version: int) -> int:
    """Return a new ruleset; struct landlock_ruleset_attr is only as long as the kernel knows it."""
    if version >= SCOPES_SINCE:
        attribute = struct.pack("=3Q", *handled)
    elif version >= TCP_SINCE:
        attribute = struct.pack("=2Q", *handled[:2])
    else:
        attribute = struct.pack("=Q", handled.files)
    return syscalls.syscall(
        "landlock_create_ruleset",
        syscalls.LANDLOCK_CREATE_RULESET,
        ctypes.create_string_buffer(attribute, len(attribute)),
        len(attribute),
        0,
    )


def _enter(ruleset: int) -> None:
    syscalls.syscall("landlock_restrict_self", syscalls.LANDLOCK_RESTRICT_SELF, ruleset, 0)


def _is_socket(path: bytes) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def _allow(ruleset: int, path: bytes, rights: int, *, may_be_missing: bool) -> None:
    try:
        place = beneath.open_place(path)
    except FileNotFoundError:
        if may_be_missing:
            return
        raise
    except OSError as error:
        raise OSError(error.errno, f"{os.fsdecode(path)}: {error.strerror}") from None
    _add_rule(ruleset, place, rights)


def _allow_whatever_it_is(ruleset: int, path: bytes, rights: int) -> None:
    try:
        # Links at the top are the system's own, such as /bin.
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # a dangling link, or a place that we may not enter: it cannot be written to
        return
    _add_rule(ruleset, place, rights)


def _add_rule(ruleset: int, place: int, rights: int) -> None:
    """Give ``rights`` beneath the descriptor, and close it."""
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights = landlock_rights.of_files(rights)
        # struct landlock_path_beneath_attr is packed: allowed_access, parent_fd.
        rule = struct.pack("=Qi", rights, place)
        syscalls.syscall(
            "landlock_add_rule",
            syscalls.LANDLOCK_ADD_RULE,
            ruleset,
            _PATH_BENEATH,
            ctypes.create_string_buffer(rule, len(rule)),
            0,
        )
    finally:
        os.close(place)
