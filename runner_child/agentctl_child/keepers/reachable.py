"""What Landlock and the surface filter let an agent reach, out of its view."""

import errno
import functools
import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from agentctl_child.keepers.refusal import CannotStartError
from agentctl_child.sandbox import landlock, seccomp
from agentctl_protocol.spawning import Bind, Part, Scratch
from agentctl_protocol.vocabulary import Network, Sandbox

#: Not /dev/random for writing: nothing needs that, and so it shows, without a trace,
#: whether Landlock holds.
_DEVICES: Final = (b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/urandom", b"/dev/tty")
#: The run's own, at strict only: at standard they are the host's, and who may open those may
#: open the caller's, read what is typed there and write to it.
_TERMINALS: Final = (b"/dev/ptmx", b"/dev/pts")
_CANARY: Final = b"/dev/random"


class Reach(NamedTuple):
    """Paths by what may be done with them, as `landlock.restrict` takes them.

    ``readable`` of None: Landlock has no say in that.
    """

    readable: tuple[bytes, ...] | None
    writable: tuple[bytes, ...]
    own: tuple[bytes, ...]
    devices: tuple[bytes, ...]
    optional: frozenset[bytes]


def reach_of(level: Sandbox, view: Sequence[Part]) -> Reach:
    """What a run at a level may reach of its view.  Pure."""
    binds = [part for part in view if isinstance(part, Bind)]
    given = (part.path for part in binds if part.device and part.path != _CANARY)
    terminals = _TERMINALS if level is Sandbox.STRICT else ()
    devices = (*_DEVICES, *terminals, *given)
    optional = frozenset((*devices, *(part.path for part in binds if part.optional)))
    hosts = [part.path for part in binds if part.writable and not (part.device or part.own)]
    writable, own = [*hosts], [part.path for part in binds if part.own]
    if level is Sandbox.STRICT:
        # The root holds nothing but the view, so that mounts are the wall for reading: a
        # second one would make each open(2) 1.4 times as long (tests/benchmarks).
        # A rule about a directory holds for what is mounted in it, too: where a workspace lies
        # in the run's home, the home gives no more rights than the workspace.
        for path in (part.path for part in view if isinstance(part, Scratch)):
            around = any(inside.startswith(path.rstrip(b"/") + b"/") for inside in hosts)
            (writable if around else own).append(path)
        return Reach(None, tuple(writable), (*own, b"/dev/shm"), devices, optional)
    # What the host has, since nothing is mounted.
    readable = [part.path for part in binds if not part.writable and not part.device]
    return Reach((*readable, b"/proc", _CANARY), tuple(writable), tuple(own), devices, optional)


def restrict(level: Sandbox, view: Sequence[Part], network: Network) -> tuple[str, ...]:
    """Enter the Landlock domain of a run, and try whether it holds.

    Returns what there is to say of it.  Raises CannotStartError, OSError.
    """
    reach = reach_of(level, view)
    could = _can_open_canary()
    words = landlock.restrict(
        reach.readable,
        reach.writable,
        own=reach.own,
        # A link, as /dev/ptmx is in some places, leads to what is there under its own name.
        devices=[path for path in reach.devices if not os.path.islink(path)],
        optional=reach.optional,
        # At strict an empty network namespace is the wall.
        network=network if level is Sandbox.STANDARD else Network.HOST,
    )
    if could and _can_open_canary():
        raise CannotStartError("sandbox", "Landlock is on but does not hold")
    return words


def _can_open_canary() -> bool:
    try:
        os.close(os.open(_CANARY, os.O_WRONLY | os.O_CLOEXEC))
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.ENOENT, errno.EROFS):
            raise
        return False
    return True


@functools.cache
def surface(level: Sandbox, network: Network) -> bytes:
    """The filter that takes away what no agent needs.

    At strict without a network, sockets are the run's own: an empty network namespace and a
    private root are the wall.
    """
    if level is Sandbox.STRICT:
        own_sockets = network is Network.NONE or landlock.has_scopes()
        return seccomp.surface_filter(
            network=Network.HOST,
            unix_sockets=own_sockets,
            shares_host=False,
            # What may be written, and so emptied, is for the mounts to say.
            truncation=True,
        )
    return seccomp.surface_filter(
        network=network,
        unix_sockets=landlock.covers("resolve_unix"),
        shares_host=True,
        truncation=landlock.covers("truncate"),
    )
