"""The supervisor process of one detached run, as started by ``agentctl run -d``.

`detached.start` starts it as ``detached.supervisor_process ORDER_FD ANSWER_FD``, isolated like
all our processes.  It reads the order from ORDER_FD, answers through ANSWER_FD once the agent is
running, and stays until the run is over.
"""

import contextlib
import os
import signal
import sys

from agentctl_protocol.report import Actor
from agentctl_protocol.spec import RunSpec, SpecError
from agentctl_protocol.vocabulary import EXIT_OWN_FAILURE, EXIT_USAGE, Reason
from agentctl_supervisor.detached.start import Answer
from agentctl_supervisor.errors import AgentctlError
from agentctl_supervisor.filesystem.json_file import decode_json, encode_json
from agentctl_supervisor.processes import own_limits
from agentctl_supervisor.spawner.start import StartedSpawner


class _Caller:
    """The process that waits for our answer, which is sent once."""

    def __init__(self, answer_fd: int) -> None:
        self._fd = answer_fd

    def tell(self, answer: Answer) -> bool:
        """Send *answer*, unless one was sent before; return False if the caller has gone."""
        if self._fd < 0:
            return True
        fd, self._fd = self._fd, -1
        try:
            with open(fd, "wb") as file:
                file.write(encode_json(answer))
        except OSError:
            return False
        return True


def main(order_fd: int, answer_fd: int) -> None:
    """Supervise one run until it is over."""
    for fd in (order_fd, answer_fd):
        os.set_inheritable(fd, False)
    # The end of the terminal from which the run was started must not end this process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    caller = _Caller(answer_fd)
    try:
        with open(order_fd, "rb") as file:
            spec = decode_json(file.read(), RunSpec)
        own_limits.take_all()
        with StartedSpawner() as spawner:
            import trio

            from agentctl_supervisor.event_loop.readiness import check_epoll

            check_epoll()
            trio.run(_supervise, spec, spawner, caller)
    except BaseException as error:
        caller.tell(_answer_for(error))
        raise


async def _supervise(spec: RunSpec, spawner: StartedSpawner, caller: _Caller) -> None:
    import trio

    from agentctl_supervisor.supervisor import Supervisor

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with (
            Supervisor.open(subreaper=True, spawner=spawner) as supervisor,
            trio.open_nursery() as nursery,
        ):
            live = await supervisor.start(spec.opened())

            async def obey() -> None:
                async for number in signals:
                    live.request_stop(
                        reason=Reason.SUPERVISOR_EXIT,
                        detail=f"its detached supervisor got {signal.Signals(number).name}",
                        actor=Actor("supervisor", f"pid {os.getpid()}"),
                    )

            nursery.start_soon(obey)
            report = await live.wait_started()
            if not caller.tell(Answer(report=report.brief())):
                live.request_stop(
                    reason=Reason.SUPERVISOR_EXIT,
                    detail="whoever started it left before it began",
                    actor=Actor("supervisor", f"pid {os.getpid()}"),
                )
            await live.wait(durable=True)
            nursery.cancel_scope.cancel()


def _answer_for(error: BaseException) -> Answer:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case AgentctlError():
            return Answer(error=str(error), hint=error.hint, exit_code=error.exit_code)
        case SpecError():
            return Answer(error=str(error), hint=error.hint, exit_code=EXIT_USAGE)
        case _:
            text, hint = f"unexpected {type(error).__name__}: {error}", ""
            if os.environ.get("AGENTCTL_DEBUG"):
                import traceback

                text = "".join(traceback.format_exception(error))
            return Answer(error=text, hint=hint, exit_code=EXIT_OWN_FAILURE)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(int(sys.argv[1]), int(sys.argv[2]))
