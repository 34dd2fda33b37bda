"""Keeps a spawner ready: starts it in the background, and replaces it when it dies."""

from typing import Final

import trio

from agentctl_supervisor.errors import SpawnError, described
from agentctl_supervisor.spawner.process import SpawnerProcess
from agentctl_supervisor.spawner.start import StartedSpawner


class _Coming:
    """A spawner that is being started; ``error`` is set if that failed."""

    def __init__(self) -> None:
        self.over = trio.Event()
        # Shielded, because the tasks that wait for it are shielded, too.  If it were cancelled,
        # they would start one spawner after the other.
        self.scope = trio.CancelScope(shield=True)
        self.error: SpawnError | None = None


class SpawnerSupply:
    """The spawner of one supervisor.

    It is started in a task of *nursery*, so a task that waits for it can give up without harm to
    the others.  *started*: a spawner that was started already.
    """

    def __init__(self, nursery: trio.Nursery, started: StartedSpawner | None) -> None:
        #: Held while a spawner is started.  While another task holds it, none is started.
        self.settled: Final = trio.Lock()
        self._nursery = nursery
        self._started = started
        self._spawner: SpawnerProcess | None = None
        self._coming: _Coming | None = None

    def __repr__(self) -> str:
        return f"<SpawnerSupply {self._spawner}>"

    @property
    def pid(self) -> int | None:
        """The process id of the current spawner, or None if there is none."""
        return None if self._spawner is None else self._spawner.pid

    def warm_up(self) -> None:
        """Start a spawner in the background, so that no run has to wait for it later."""
        if self._coming is None:
            self._coming = _Coming()
            self._nursery.start_soon(self._bring, self._coming)

    async def ready(self) -> SpawnerProcess:
        """Return a spawner that can fork runs now.

        Raises:
            SpawnError: no spawner can be started.
        """
        while self._spawner is None or self._spawner.is_dead():
            self.warm_up()
            coming = self._coming
            assert coming is not None
            await coming.over.wait()
            if coming.error is not None:
                raise coming.error
        return self._spawner

    async def _bring(self, coming: _Coming) -> None:
        try:
            with coming.scope:
                async with self.settled:
                    await self._replace()
        except SpawnError as error:
            coming.error = error
        except Exception as error:  # noqa: BLE001 - the waiting tasks get it; others go on
            coming.error = SpawnError(f"no process that starts runs: {described(error)}")
        finally:
            self._coming = None
            coming.over.set()

    async def _replace(self) -> None:
        if self._spawner is not None:
            await self._spawner.close()
        started, self._started = self._started, None
        self._spawner = None
        spawner = SpawnerProcess(started)
        try:
            await spawner.wait_ready()
        except BaseException:
            await spawner.close(now=True)
            raise
        self._spawner = spawner

    async def close(self) -> None:
        """End the spawner.  Its remaining runs end with it."""
        if (coming := self._coming) is not None:
            coming.scope.cancel()
            await coming.over.wait()
        if self._spawner is not None:
            await self._spawner.close()
            self._spawner = None
