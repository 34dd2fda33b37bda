"""The last steps in the agent's own process, between the fork and the agent's first instruction."""

import errno
import gc
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, TypeVar

from agentctl_child import agent
from agentctl_child.keepers import process_title
from agentctl_child.keepers.confinement import Confinement
from agentctl_child.keepers.failpoints import reach
from agentctl_child.keepers.layers import SCHEDULED_BELOW
from agentctl_child.keepers.packet_pipe import write_packet
from agentctl_child.keepers.refusal import (
    refused_program,
    refused_working_directory,
    why_ended,
)
from agentctl_child.sandbox import descriptors, prctl, scheduling, signals
from agentctl_protocol.spawning import (
    CHANNEL_FD_VARIABLE,
    RUN_ID_VARIABLE,
    Launch,
    Running,
    pack,
)
from agentctl_protocol.vocabulary import CONFINED

#: The two ends of the channel in every agent: the end to read from and the end to write to.
CHANNEL_FDS: Final = (3, 4)
_REPORT_FD: Final = 5
_BEGIN_FD: Final = 6
#: Seen only if the supervisor gets no report; normally the report gives the reason.
_NOT_STARTED: Final = 127
_T = TypeVar("_T")
_GO_ON: Final = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)


@dataclass(frozen=True)
class AgentDescriptors:
    """The descriptors that the agent is given, and two pipes that are needed only for its start.

    ``begin``: the agent's program must not run before one byte arrives on this pipe. By then the
    supervisor has written down which process to kill. End of file means that the supervisor is
    gone. ``report``: a pipe to the warden. It carries either one Refused, or one Running followed
    by EOF. EOF means that exec succeeded or that the agent's function is about to be called.
    """

    stdin: int
    stdout: int
    stderr: int
    channel_in: int
    channel_out: int
    begin: int
    report: int

    def handed_over(self) -> tuple[int, ...]:
        """Return the descriptors that the agent keeps, in the order of their new numbers."""
        return (self.stdin, self.stdout, self.stderr, self.channel_in, self.channel_out)


def become_agent(
    launch: Launch,
    given: AgentDescriptors,
    confinement: Confinement,
    *,
    confined: tuple[str, ...] | None = None,
) -> NoReturn:
    """Turn this forked process into the agent. Never returns, never raises.

    ``confined`` gives the layers if the parent process has confined itself, and therefore this
    process too.
    """
    report = given.report
    try:
        os.setsid()
        report = _arrange_descriptors(given)
        reach("agent:descriptors")
        if confined is None:
            layers = confine(launch, confinement)
            if not os.read(_BEGIN_FD, 1):
                os._exit(_NOT_STARTED)
        else:  # the parent that confined this process has also waited for the begin byte
            layers = confined
        os.close(_BEGIN_FD)
        # This comes last, so that the steps above did not have to wait for other processes.
        if launch.sandbox in CONFINED:
            scheduling.lower()
        layers = (*layers, *_scheduled(os.getpid()))
        reach("agent:confined")
        env = _environment(launch)
        write_packet(report, pack(Running(layers=layers)))
        reach("agent:reported")
        argv = _command(launch)
        if argv:
            # Pending signals (an early SIGTERM) take effect here and not in the new program.
            signals.accept_all()
            _first_executable(argv, env, lambda path: os.execve(path, argv, env))
        _call(launch, env, report)
    except BaseException as error:  # noqa: BLE001 - no exception may return into init
        write_packet(report, pack(why_ended("the agent's process", error)))
    os._exit(_NOT_STARTED)


def spawn_agent(launch: Launch, given: AgentDescriptors, layers: tuple[str, ...]) -> int:
    """Start the agent's program from a process that is already confined; return the new pid.

    posix_spawn shares our memory until the exec. It therefore saves the third fork of a run, which
    is half of the cost of a short run. Raises CannotStartError; then no process exists.
    """
    argv, env = _command(launch), _environment(launch)
    sources = given.handed_over()
    # The spawner received a memfd and a status socket first, so no source is a target.
    assert min(sources) >= len(sources)

    def spawn(path: bytes) -> int:
        return os.posix_spawn(
            path,
            argv,
            env,
            # Everything else is close-on-exec.
            file_actions=[
                (os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(sources)
            ],
            setsid=True,
            setsigmask=(),
        )

    if launch.sandbox in CONFINED:
        pid = _in_lowered_thread(lambda: _first_executable(argv, env, spawn))
    else:
        pid = _first_executable(argv, env, spawn)
    write_packet(given.report, pack(Running(layers=(*layers, *_scheduled(pid)))))
    return pid


def _in_lowered_thread(work: Callable[[], int]) -> int:
    """Run ``work`` in a thread of the lowest priority and return its value.

    A process that ``work`` starts inherits the thread's scheduling class. The class belongs to a
    thread, and a lowered thread cannot be raised again. Init must stay above the agent so that it
    can end the run. Init cannot lower its child from outside either: the child may have forked
    before.
    """
    done: list[int | BaseException] = []

    def run() -> None:
        try:
            scheduling.lower()
            done.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            done.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    (result,) = done
    if isinstance(result, BaseException):
        raise result
    return result


def _scheduled(pid: int) -> tuple[str, ...]:
    return (SCHEDULED_BELOW,) if scheduling.is_lowered(pid) else ()


def confine(
    launch: Launch, confinement: Confinement, cgroup: bytes | None = None
) -> tuple[str, ...]:
    """Confine this process and enter the working directory. Raises CannotStartError, OSError.

    ``cgroup``: as in `layers.Tried`.
    """
    layers = confinement.apply(cgroup)
    # As the run's own user: the agent may not enter every directory that root may enter.
    try:
        os.chdir(launch.cwd)
    except OSError as error:
        raise refused_working_directory(launch.cwd, error) from None
    return layers


def _command(launch: Launch) -> tuple[bytes, ...]:
    """Return the program to execute; empty if this interpreter itself can call the function."""
    if launch.argv or not launch.python:
        return launch.argv
    return (launch.python, b"-I", b"-c", agent.BOOTSTRAP.encode())


def _arrange_descriptors(given: AgentDescriptors) -> int:
    placed = (*given.handed_over(), given.report, given.begin)
    descriptors.place(dict(enumerate(placed)))
    os.set_inheritable(_REPORT_FD, False)
    descriptors.close_all_but(range(len(placed)))
    return _REPORT_FD


def _environment(launch: Launch) -> dict[bytes, bytes]:
    return {
        **launch.env,
        RUN_ID_VARIABLE.encode(): launch.run.encode(),
        CHANNEL_FD_VARIABLE.encode(): b"%d,%d" % CHANNEL_FDS,
    }


def _first_executable(
    argv: Sequence[bytes], env: Mapping[bytes, bytes], execute: Callable[[bytes], _T]
) -> _T:
    """Return the value of ``execute`` for the first path that it accepts.

    Raises CannotStartError.
    """
    refusal: OSError | None = None
    refused_path = argv[0]
    for path in _candidates(argv[0], env):
        try:
            return execute(path)
        except OSError as error:
            # Like the shells: a path in a directory of PATH that cannot be seen counts as missing,
            # whatever the reason. Continue past a missing path and past a forbidden one; report
            # the forbidden one at the end.
            if os.path.exists(path):
                refusal, refused_path = error, path
            elif refusal is None:
                refusal = error
                if path != argv[0] and error.errno == errno.EACCES:
                    refusal = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            if error.errno not in _GO_ON:
                break
    assert refusal is not None  # there is always a candidate
    raise refused_program(refusal, refused_path, argv, env)


def _candidates(program: bytes, env: Mapping[bytes, bytes]) -> list[bytes]:
    if b"/" in program:
        return [program]
    search = env.get(b"PATH", os.defpath.encode())
    return [os.path.join(directory, program) for directory in search.split(b":")]


def _call(launch: Launch, env: Mapping[bytes, bytes], report: int) -> NoReturn:
    """Hand this process over to the agent's function."""
    os.environb.clear()
    os.environb.update(env)
    process_title.set_title("agentctl-agent", f"agentctl agent {launch.run} {launch.target}")
    # It is an ordinary process again: its user may attach a debugger.
    prctl.set_dumpable(True)
    gc.unfreeze()
    gc.enable()
    os.close(report)
    signals.python_defaults()
    signals.accept_all()
    agent.main(CHANNEL_FDS)
