"""Places that stand by: made in advance, each for a run like one before it.

A place is all that confines a run, from its namespaces to the last filter, with init in it.  To
make it takes most of the time of a start; to begin a run in one that is there takes a few
milliseconds.  It is used for a run only if what that run is to have, decided anew, is what the
place was made of, and is still the same files.  Nothing has run in it before.
"""

import itertools
import os
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec
import trio

from agentctl_protocol.spawning import Bind, Launch, Part
from agentctl_protocol.spec import RunSpec
from agentctl_supervisor.keepers import Keepers
from agentctl_supervisor.plumbing import lay_status
from agentctl_supervisor.processes.cgroup import make_run_cgroup
from agentctl_supervisor.processes.mountinfo import table
from agentctl_supervisor.spawner_process import SpawnerProcess

IDLE_S: Final = 30.0
"""How long a place stands by: meanwhile it keeps file systems busy, and two processes."""
_MADE_WITHIN_S: Final = 10.0
_GONE_WITHIN_S: Final = 10.0

_SHOWING: Final = ("PATH", "PYTHONPATH", "SHELL")
"""Variables that decide what a run sees."""

Kind: TypeAlias = tuple[object, ...]
"""What runs that may fit into one place are asked for with."""
Sources: TypeAlias = tuple[object, ...]

_numbers: Final = itertools.count(1)


def kind_of(spec: RunSpec, cwd: str) -> Kind:
    """That of *spec*, which is settled and begins in *cwd*."""
    shown = tuple((spec.env or {}).get(name) for name in _SHOWING)
    return (spec.sandbox, spec.net, spec.workspace, cwd, spec.ro, spec.rw, spec.unprotect, shown)


def sources_of(view: tuple[Part, ...]) -> Sources:
    """Which files of the host *view* shows: one that was exchanged is another."""
    return (table(), *(_identity(part.path) for part in view if isinstance(part, Bind)))


def _identity(path: bytes) -> tuple[int, ...] | None:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mode, found.st_uid, found.st_gid


@dataclass(eq=False)
class Standby:
    """One place.  ``launch`` has no run in it; ``keepers`` become those of the run."""

    kind: Kind
    launch: Launch
    sources: Sources
    keepers: Keepers
    spawner: SpawnerProcess
    watch: trio.CancelScope = field(default_factory=trio.CancelScope)
    released: trio.Event = field(default_factory=trio.Event)
    over: trio.Event = field(default_factory=trio.Event)
    taken: bool = False
    gone: bool = False

    @property
    def own_uid(self) -> int | None:
        """The uid that a run in it has."""
        return self.launch.host_uid

    def fits(self, launch: Launch) -> bool:
        """Whether the run of *launch* may begin in it, now."""
        return (
            launch.place == self.launch.place
            and sources_of(launch.view) == self.sources
            and self.keepers.stands
        )


class Standbys:
    """At most *most* places of one supervisor."""

    def __init__(self, most: int) -> None:
        self.most: Final = most
        self._standing: list[Standby] = []
        self._all: set[Standby] = set()
        self._one_stands = trio.Event()
        self._closing = False

    def __repr__(self) -> str:
        return f"<Standbys {len(self._standing)} of {self.most}>"

    def all(self) -> list[Standby]:
        """Those that stand, or are being made, or ended."""
        return list(self._all)

    async def wait_for_one(self) -> None:
        """Return once one stands."""
        await self._one_stands.wait()

    def wardens(self) -> set[int]:
        """Their pids, as far as they are known."""
        told = (standby.keepers.contained for standby in self._all)
        return {contained.warden.pid for contained in told if contained is not None}

    def candidate(self, kind: Kind) -> Standby | None:
        """One that a run of *kind* may fit into."""
        return next((one for one in self._standing if one.kind == kind), None)

    def take(self, standby: Standby) -> None:
        """Give *standby* to a run, which waits for ``released`` and then uses its keepers."""
        standby.taken = True
        self.give_up(standby)

    def give_up(self, standby: Standby) -> None:
        """End *standby*, which stands, if it was not taken."""
        self._remove(standby)
        standby.watch.cancel()

    def wants(self, kind: Kind) -> bool:
        """Whether there is none of *kind*, and one may be made."""
        if self._closing or self.most == 0:
            return False
        return all(one.kind != kind for one in self._all if not one.watch.cancel_called)

    async def make(self, kind: Kind, launch: Launch, spawner: SpawnerProcess) -> bool:
        """Make one of *kind* for runs like that of *launch*; returns when it is used or gone.

        Returns whether nothing has its uid any more.

        Raises:
            SpawnError, OSError: none can be made now.
        """
        place = msgspec.structs.replace(
            launch,
            run=f"standby-{os.getpid()}-{next(_numbers)}",
            env={},
            cwd=b"/",
            argv=(),
            target="",
            python=b"",
            deadline_s=None,
        )
        sources = sources_of(place.view)
        status, theirs = lay_status()
        keepers = Keepers(status, make_run_cgroup(place.run))
        standby = Standby(kind, place, sources, keepers, spawner)
        self._all.add(standby)
        try:
            with standby.watch:
                try:
                    await spawner.launch(place, theirs.fds, keepers.cgroup_fd)
                finally:
                    theirs.close()
                stands = False
                with trio.move_on_after(_MADE_WITHIN_S):
                    stands = await keepers.wait_standing()
                if stands:
                    await self._stand(standby)
        finally:
            if not standby.taken:
                await self._end(standby)
            self._all.discard(standby)
            standby.released.set()
            standby.over.set()
        return standby.gone

    async def _stand(self, standby: Standby) -> None:
        if len(self._standing) >= self.most:
            # The one that was not used for longest.
            self.give_up(self._standing[0])
        self._standing.append(standby)
        self._one_stands.set()
        with trio.move_on_after(IDLE_S):
            await standby.keepers.wait_fallen()
        if standby in self._standing:
            self._remove(standby)

    def _remove(self, standby: Standby) -> None:
        self._standing.remove(standby)
        if not self._standing:
            self._one_stands = trio.Event()

    async def _end(self, standby: Standby) -> None:
        """End it, and what is left of it."""
        with trio.CancelScope(shield=True):
            standby.keepers.kill()
            with trio.move_on_after(_GONE_WITHIN_S):
                await standby.keepers.follow(lambda _: None)
                standby.gone = True
            standby.keepers.close()

    async def close(self) -> None:
        """End all of them."""
        self._closing = True
        for standby in list(self._all):
            standby.watch.cancel()
        for standby in list(self._all):
            await standby.over.wait()
