"""Threads that are started in advance, for blocking work that a run's end depends on.

``trio.to_thread`` starts a thread when there is work and none is idle, and ends it after ten idle
seconds.  A run can make a new thread impossible at that moment, if it fills the process table.
The threads of this module are started with the supervisor and stay.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Final, TypeVar, TypeVarTuple

import trio

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


@contextlib.contextmanager
def worker_threads(**counts: int) -> Iterator[None]:
    """Keep threads for this event loop until the block ends; *counts* has a number for each work.

    Raises:
        RuntimeError: they cannot be started.
    """
    pools = _pools_of_this_loop()
    with contextlib.ExitStack() as stack:
        for work, count in counts.items():
            pool = pools.get(work) or _Pool(work, count)
            pools[work] = pool
            pool.users += 1
            stack.callback(_leave, pools, work)
        yield


async def run_sync(
    work: str,
    call: Callable[[*_Ts], _T],
    *args: *_Ts,
    abandon_on_cancel: bool = False,
) -> _T:
    """Make *call* in a thread that is kept for *work*; return or raise what the call does.

    If no threads are kept for *work*, use a thread of trio's.  *abandon_on_cancel*: a cancelled
    task does not wait until the call has ended.
    """
    pool = _pools_of_this_loop().get(work)
    if pool is None:
        return await trio.to_thread.run_sync(call, *args, abandon_on_cancel=abandon_on_cancel)
    job = _Job(lambda: call(*args))
    await pool.do(job, abandon_on_cancel=abandon_on_cancel)
    if job.error is not None:
        raise job.error
    return job.result  # type: ignore[return-value]


def _leave(pools: "dict[str, _Pool]", work: str) -> None:
    pool = pools[work]
    pool.users -= 1
    if not pool.users:
        del pools[work]
        pool.close()


def _pools_of_this_loop() -> "dict[str, _Pool]":
    if (pools := _pools.get(None)) is None:
        pools = {}
        _pools.set(pools)
    return pools


class _Job:
    """A call and its result.  ``abandoned``: no task waits for it any more."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Final = call
        self.over: Final = trio.Event()
        self.result: object = None
        self.error: BaseException | None = None
        self.taken = False
        self.abandoned = False


class _Pool:
    """A pool of *count* threads, which take jobs in the order of their arrival.

    A thread whose job was abandoned but does not end is replaced, if another can be started.
    ``users`` counts the callers that rely on the pool.
    """

    def __init__(self, work: str, count: int) -> None:
        self.users = 0
        self._work = work
        self._count = count
        self._token = trio.lowlevel.current_trio_token()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._stuck = 0
        try:
            for _ in range(count):
                self._start()
        except RuntimeError:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<_Pool {self._work}: {self._threads} threads, {self._stuck} stuck>"

    async def do(self, job: _Job, *, abandon_on_cancel: bool) -> None:
        """Let a thread make the call of *job*, and wait until it has."""
        await trio.lowlevel.checkpoint_if_cancelled()
        with self._lock:
            if self._threads - self._stuck < self._count:
                with contextlib.suppress(RuntimeError):
                    self._start()
        self._jobs.put(job)
        try:
            with trio.CancelScope(shield=not abandon_on_cancel):
                await job.over.wait()
        except trio.Cancelled:
            with self._lock:
                job.abandoned = True
                self._stuck += job.taken
            raise

    def close(self) -> None:
        """End the threads once they have done all jobs."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _start(self) -> None:
        name = f"agentctl {self._work}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()
        self._threads += 1

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not self._take(job):
                continue
            try:
                job.result = job.call()
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                job.error = error
            is_one_too_many = self._finish(job)
            # The loop may have ended meanwhile.
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(job.over.set)
            if is_one_too_many:
                return

    def _take(self, job: _Job) -> bool:
        """Mark *job* as taken; return False if it was abandoned."""
        with self._lock:
            job.taken = not job.abandoned
            return job.taken

    def _finish(self, job: _Job) -> bool:
        """Mark *job* as done; return True if this thread was replaced and is not needed now."""
        with self._lock:
            self._stuck -= job.abandoned
            job.taken = False
            is_one_too_many = self._threads - self._stuck > self._count
            self._threads -= is_one_too_many
            return is_one_too_many


_pools: Final = trio.lowlevel.RunVar[dict[str, _Pool] | None]("worker threads")
