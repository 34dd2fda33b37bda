"""The last steps in the agent's own process, between the fork and its first instruction."""

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

#: Where every agent finds its two ends of the channel: the one to read from, the one to write to.
CHANNEL_FDS: Final = (3, 4)
_REPORT_FD: Final = 5
_BEGIN_FD: Final = 6
#: Only seen if the supervisor is not told otherwise: the report says why.
_NOT_STARTED: Final = 127
_T = TypeVar("_T")
_GO_ON: Final = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)


@dataclass(frozen=True)
class AgentDescriptors:
    """What the agent is given, and two pipes that only its start needs.

    ``begin``: the agent's program must not run before a byte comes through it: the supervisor
    has written down then whom to kill.  Its end means that the supervisor is gone.
    ``report``: to the warden.  Either one Refused comes through it, or one Running and then EOF:
    exec succeeded, or the agent's function is about to be called.
    """

    stdin: int
    stdout: int
    stderr: int
    channel_in: int
    channel_out: int
    begin: int
    report: int

    def handed_over(self) -> tuple[int, ...]:
        """What the agent keeps, in the order of its numbers from 0 on."""
        return (self.stdin, self.stdout, self.stderr, self.channel_in, self.channel_out)


def become_agent(
    launch: Launch,
    given: AgentDescriptors,
    confinement: Confinement,
    *,
    confined: tuple[str, ...] | None = None,
) -> NoReturn:
    """Turn this forked process into the agent.  Never returns, never raises.

    ``confined``: the layers, if its parent has confined itself and so this process too.
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
        else:  # whoever confined it has waited, too
            layers = confined
        os.close(_BEGIN_FD)
        # Last: what it still had to do for us was not to wait for others.
        if launch.sandbox in CONFINED:
            scheduling.lower()
        layers = (*layers, *_scheduled(os.getpid()))
        reach("agent:confined")
        env = _environment(launch)
        write_packet(report, pack(Running(layers=layers)))
        reach("agent:reported")
        argv = _command(launch)
        if argv:
            # Pending signals (a SIGTERM that came early) take effect here, not in some program.
            signals.accept_all()
            _first_executable(argv, env, lambda path: os.execve(path, argv, env))
        _call(launch, env, report)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it must not return into init
        write_packet(report, pack(why_ended("the agent's process", error)))
    os._exit(_NOT_STARTED)


def spawn_agent(launch: Launch, given: AgentDescriptors, layers: tuple[str, ...]) -> int:
    """Start the agent's program from a process that is confined already; return its pid.

    posix_spawn shares our memory until the exec and so spares the third fork of a run,
    half of what a short run costs.  Raises CannotStartError; there is no process then.
    """
    argv, env = _command(launch), _environment(launch)
    sources = given.handed_over()
    # The spawner was given a memfd and a status socket before them, so no source is a target.
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
    """What ``work`` returns, done by a thread below all others: what it starts inherits that.

    The class is a thread's, and what has gone below cannot come back.  Init has to stay above
    to end the run, and its child may have forked before init could lower it from outside.
    """
    done: list[int | BaseException] = []

    def run() -> None:
        try:
            scheduling.lower()
            done.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again by the other thread
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
    """Confine this process and enter the working directory.  Raises CannotStartError, OSError.

    ``cgroup``: as in `layers.Tried`.
    """
    layers = confinement.apply(cgroup)
    # As the run's own user: what root may enter, the agent may not.
    try:
        os.chdir(launch.cwd)
    except OSError as error:
        raise refused_working_directory(launch.cwd, error) from None
    return layers


def _command(launch: Launch) -> tuple[bytes, ...]:
    """The program to execute; empty for a function that this interpreter can call itself."""
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
    """What ``execute`` returns for the first path that it accepts.  Raises CannotStartError."""
    refusal: OSError | None = None
    refused_path = argv[0]
    for path in _candidates(argv[0], env):
        try:
            return execute(path)
        except OSError as error:
            # As the shells: what cannot be seen in a directory of the search path is missing,
            # whatever the reason; go on past it and past what is forbidden, and tell of the
            # latter at the end.
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
    """Hand this process to the agent's function."""
    os.environb.clear()
    os.environb.update(env)
    process_title.set_title("agentctl-agent", f"agentctl agent {launch.run} {launch.target}")
    # An ordinary process again: its user may attach a debugger to it.
    prctl.set_dumpable(True)
    gc.unfreeze()
    gc.enable()
    os.close(report)
    signals.python_defaults()
    signals.accept_all()
    agent.main(CHANNEL_FDS)
