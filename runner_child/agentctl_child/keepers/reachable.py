"""The paths that Landlock and the surface filter let an agent reach, derived from its view."""

import errno
import functools
import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from agentctl_child.keepers.refusal import CannotStartError
from agentctl_child.sandbox import landlock, seccomp
from agentctl_protocol.spawning import Bind, Part, Scratch
from agentctl_protocol.vocabulary import Network, Sandbox

#: /dev/random is not writable here: no agent needs that. An attempt to open it for writing
#: therefore shows, without a side effect, whether Landlock holds.
_DEVICES: Final = (b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/urandom", b"/dev/tty")
#: These devices are the run's own at strict only. At standard they are the host's: a process that
#: may open them may open the caller's terminal, read what is typed there and write to it.
_TERMINALS: Final = (b"/dev/ptmx", b"/dev/pts")
_CANARY: Final = b"/dev/random"


class Reach(NamedTuple):
    """Paths grouped by permitted use, as `landlock.restrict` takes them.

    ``readable`` of None: Landlock does not restrict reading.
    """

    readable: tuple[bytes, ...] | None
    writable: tuple[bytes, ...]
    own: tuple[bytes, ...]
    devices: tuple[bytes, ...]
    optional: frozenset[bytes]


def reach_of(level: Sandbox, view: Sequence[Part]) -> Reach:
    """Return the paths of its view that a run at a level may reach. Pure."""
    binds = [part for part in view if isinstance(part, Bind)]
    given = (part.path for part in binds if part.device and part.path != _CANARY)
    terminals = _TERMINALS if level is Sandbox.STRICT else ()
    devices = (*_DEVICES, *terminals, *given)
    optional = frozenset((*devices, *(part.path for part in binds if part.optional)))
    hosts = [part.path for part in binds if part.writable and not (part.device or part.own)]
    writable, own = [*hosts], [part.path for part in binds if part.own]
    if level is Sandbox.STRICT:
        # The root holds nothing but the view, so the mounts are the barrier for reading. A second
        # barrier would make each open(2) 1.4 times as long (tests/benchmarks). A rule about a
        # directory also holds for what is mounted in it. If a workspace lies in the run's home,
        # the home therefore gives no more rights than the workspace.
        for path in (part.path for part in view if isinstance(part, Scratch)):
            around = any(inside.startswith(path.rstrip(b"/") + b"/") for inside in hosts)
            (writable if around else own).append(path)
        return Reach(None, tuple(writable), (*own, b"/dev/shm"), devices, optional)
    # Parts of the host, because nothing is mounted.
    readable = [part.path for part in binds if not part.writable and not part.device]
    return Reach((*readable, b"/proc", _CANARY), tuple(writable), tuple(own), devices, optional)


def restrict(level: Sandbox, view: Sequence[Part], network: Network) -> tuple[str, ...]:
    """Enter the Landlock domain of a run and test that it holds.

    Returns the facts to report about the domain. Raises CannotStartError, OSError.
    """
    reach = reach_of(level, view)
    could = _can_open_canary()
    words = landlock.restrict(
        reach.readable,
        reach.writable,
        own=reach.own,
        # A link, as /dev/ptmx is on some systems, leads to a path that is listed under its own
        # name.
        devices=[path for path in reach.devices if not os.path.islink(path)],
        optional=reach.optional,
        # At strict the barrier is an empty network namespace.
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
    """Return the seccomp filter that removes the system calls that no agent needs.

    At strict without a network, sockets are the run's own: an empty network namespace and a
    private root are the barrier.
    """
    if level is Sandbox.STRICT:
        own_sockets = network is Network.NONE or landlock.has_scopes()
        return seccomp.surface_filter(
            network=Network.HOST,
            unix_sockets=own_sockets,
            shares_host=False,
            # Here the mounts decide what may be written, and so truncated.
            truncation=True,
        )
    return seccomp.surface_filter(
        network=network,
        unix_sockets=landlock.covers("resolve_unix"),
        shares_host=True,
        truncation=landlock.covers("truncate"),
    )
