"""The rights that Landlock can restrict, and their first versions: linux/landlock.h, landlock(7).

A right that a ruleset does not handle is not restricted at all. A right that the kernel does not
know is an error. Therefore every right of the running version is handled, and the missing ones are
reported.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from agentctl_protocol.vocabulary import Network


class Right(NamedTuple):
    """An access right to files. ``since``: the first ABI that has it.

    ``of_files``: a rule about a file, and not only about a directory, may carry it.
    """

    bit: int
    since: int
    of_files: bool = False


RIGHTS: Final = {
    "execute": Right(1 << 0, 1, of_files=True),
    "write_file": Right(1 << 1, 1, of_files=True),
    "read_file": Right(1 << 2, 1, of_files=True),
    "read_dir": Right(1 << 3, 1),
    "remove_dir": Right(1 << 4, 1),
    "remove_file": Right(1 << 5, 1),
    "make_char": Right(1 << 6, 1),
    "make_dir": Right(1 << 7, 1),
    "make_reg": Right(1 << 8, 1),
    "make_sock": Right(1 << 9, 1),
    "make_fifo": Right(1 << 10, 1),
    "make_block": Right(1 << 11, 1),
    "make_sym": Right(1 << 12, 1),
    "refer": Right(1 << 13, 2),
    "truncate": Right(1 << 14, 3, of_files=True),
    "ioctl_dev": Right(1 << 15, 5, of_files=True),
    # connect(2) and sendmsg(2) to socket files of processes outside; Linux 7.1.
    "resolve_unix": Right(1 << 16, 9, of_files=True),
}
TCP_SINCE: Final = 4
SCOPES_SINCE: Final = 6
_BIND_TCP_AND_CONNECT_TCP: Final = 3
_SCOPE_ABSTRACT_UNIX_SOCKET_AND_SIGNAL: Final = 3

_READABLE: Final = ("execute", "read_file", "read_dir")
#: Not make_char and make_block: a device node reaches the device behind the file system. Not
#: make_fifo: a process that opens a FIFO waits, as git does for ``.git/index``. Not ioctl_dev and
#: not resolve_unix: other programs' devices and sockets stay out of reach.
_WRITABLE: Final = (
    *_READABLE,
    *("write_file", "truncate", "remove_dir", "remove_file", "refer"),
    *("make_dir", "make_reg", "make_sock", "make_sym"),
)
_OWN: Final = (*_WRITABLE, "make_fifo")
#: Truncation too: each descriptor is given or denied it when the file is opened, in any mode.
_OF_READING: Final = (*_READABLE, "truncate")
_SOCKETS: Final = ("resolve_unix",)
_DEVICES: Final = ("read_file", "read_dir", "write_file", "truncate", "ioctl_dev")


class Handled(NamedTuple):
    """The restrictions of a ruleset, as in struct landlock_ruleset_attr."""

    files: int
    tcp: int
    scopes: int


class Grants(NamedTuple):
    """The rights that rules give, as masks of the rights of an ABI."""

    readable: int
    writable: int
    own: int
    devices: int
    sockets: int


def handled(abi: int, network: Network, *, reading: bool = True) -> Handled:
    """Return everything that this version can restrict; TCP only if there is to be no network.

    ``reading``: False leaves out the rights that are checked when a file is opened for reading.
    """
    tcp = _BIND_TCP_AND_CONNECT_TCP if network is Network.NONE and abi >= TCP_SINCE else 0
    return Handled(
        files=_mask(RIGHTS if reading else set(RIGHTS).difference(_OF_READING), abi),
        tcp=tcp,
        scopes=_SCOPE_ABSTRACT_UNIX_SOCKET_AND_SIGNAL if abi >= SCOPES_SINCE else 0,
    )


def grants(abi: int) -> Grants:
    """Return the rights for readable, writable and the run's own paths, devices and sockets."""
    lists = (_READABLE, _WRITABLE, _OWN, _DEVICES, _SOCKETS)
    return Grants(*(_mask(names, abi) for names in lists))


def of_files(mask: int) -> int:
    """Return the part of ``mask`` that a rule about a file may carry; more is EINVAL."""
    return mask & sum(right.bit for right in RIGHTS.values() if right.of_files)


def lacking(abi: int, network: Network, *, reading: bool = True) -> tuple[str, ...]:
    """Return what is not restricted: reading, then what later versions do, oldest version first.

    ``refer`` is not among them: without it, a file never changes its directory.
    """
    missing = [(right.since, name) for name, right in RIGHTS.items() if name != "refer"]
    if network is Network.NONE:
        missing.append((TCP_SINCE, "tcp"))
    missing.append((SCOPES_SINCE, "scopes"))
    late = tuple(name for since, name in sorted(missing) if since > abi)
    if reading:
        return late
    return ("reading", *late) if "truncate" in late else ("reading", "truncate", *late)


def _mask(names: Iterable[str], abi: int) -> int:
    return sum(RIGHTS[name].bit for name in names if RIGHTS[name].since <= abi)
