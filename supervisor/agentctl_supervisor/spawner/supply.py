"""A ready spawner, always: brought up in the background, and replaced when it dies."""

from typing import Final

import trio

from agentctl_supervisor.errors import SpawnError, described
from agentctl_supervisor.spawner.process import SpawnerProcess
from agentctl_supervisor.spawner.start import StartedSpawner


class _Coming:
    """A spawner that is being brought up; ``error`` if it did not come."""

    def __init__(self) -> None:
        self.over = trio.Event()
        # Whoever waits for it is shielded, too, and would have one brought up after the other.
        self.scope = trio.CancelScope(shield=True)
        self.error: SpawnError | None = None


class SpawnerSupply:
    """The spawner of one supervisor.

    It comes up in a task of *nursery*, so that whoever waits for it may give up without
    harm to the others.  *started*: one that was started already.
    """

    def __init__(self, nursery: trio.Nursery, started: StartedSpawner | None) -> None:
        #: Held while one comes up; who holds it sees none come up.
        self.settled: Final = trio.Lock()
        self._nursery = nursery
        self._started = started
        self._spawner: SpawnerProcess | None = None
        self._coming: _Coming | None = None

    def __repr__(self) -> str:
        return f"<SpawnerSupply {self._spawner}>"

    @property
    def pid(self) -> int | None:
        """The process that came up last, if it has not been replaced."""
        return None if self._spawner is None else self._spawner.pid

    def warm_up(self) -> None:
        """Have a spawner come up, so that nobody has to wait for it."""
        if self._coming is None:
            self._coming = _Coming()
            self._nursery.start_soon(self._bring, self._coming)

    async def ready(self) -> SpawnerProcess:
        """A spawner that can fork runs now.

        Raises:
            SpawnError: none comes up.
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
        except Exception as error:  # noqa: BLE001 - whoever waits for one is told; others go on
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
        """End the spawner.  Runs that it still has end with it."""
        if (coming := self._coming) is not None:
            coming.scope.cancel()
            await coming.over.wait()
        if self._spawner is not None:
            await self._spawner.close()
            self._spawner = None
