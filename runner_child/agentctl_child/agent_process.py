"""The last steps in the agent's own process, between the fork and its first instruction."""

import errno
import gc
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from agentctl_child import agent, process_title
from agentctl_child.confinement import Confinement
from agentctl_child.failpoints import reach
from agentctl_child.refusal import (
    CannotStartError,
    refused_by_system,
    refused_program,
    refused_working_directory,
)
from agentctl_child.sandbox import descriptors, prctl, signals
from agentctl_protocol.spawning import (
    CHANNEL_FD_VARIABLE,
    RUN_ID_VARIABLE,
    Launch,
    Refused,
    Running,
    pack,
)

#: Where every agent finds its end of the channel.
CHANNEL_FD: Final = 3
_REPORT_FD: Final = 4
#: Only seen if the supervisor is not told otherwise: the report says why.
_NOT_STARTED: Final = 127
_GO_ON: Final = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)


@dataclass(frozen=True)
class AgentDescriptors:
    """What the agent is given, and ``report``: its line to the warden until it has started.

    A SEQPACKET socket.  Either one Refused comes through it, or one Running and then EOF:
    exec succeeded, or the agent's function is about to be called.
    """

    stdin: int
    stdout: int
    stderr: int
    channel: int
    report: int


def become_agent(launch: Launch, given: AgentDescriptors, confinement: Confinement) -> NoReturn:
    """Turn this forked process into the agent.  Never returns, never raises."""
    report = given.report
    try:
        os.setsid()
        report = _arrange_descriptors(given)
        reach("agent:descriptors")
        env = _environment(launch)
        layers = confinement.apply()
        reach("agent:confined")
        # As the run's own user: what root may enter, the agent may not.
        _enter(launch.cwd)
        _send(report, pack(Running(layers=layers)))
        reach("agent:reported")
        if launch.argv:
            _execute(launch.argv, env)
        elif launch.python:
            _execute((launch.python, b"-I", b"-c", agent.BOOTSTRAP.encode()), env)
        _call(launch, env, report)
    except CannotStartError as error:
        _send(report, pack(error.packet()))
    except OSError as error:
        _send(report, pack(refused_by_system("the agent's process", error).packet()))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it must not return into init
        text = f"the agent's process: {type(error).__name__}: {error}"
        _send(report, pack(Refused(fault="system", detail=text[:500])))
    os._exit(_NOT_STARTED)


def _arrange_descriptors(given: AgentDescriptors) -> int:
    descriptors.place(
        {
            0: given.stdin,
            1: given.stdout,
            2: given.stderr,
            CHANNEL_FD: given.channel,
            _REPORT_FD: given.report,
        }
    )
    os.set_inheritable(_REPORT_FD, False)
    descriptors.close_all_but(range(_REPORT_FD + 1))
    return _REPORT_FD


def _environment(launch: Launch) -> dict[bytes, bytes]:
    return {
        **launch.env,
        RUN_ID_VARIABLE.encode(): launch.run.encode(),
        CHANNEL_FD_VARIABLE.encode(): b"%d" % CHANNEL_FD,
    }


def _enter(path: bytes) -> None:
    try:
        os.chdir(path)
    except OSError as error:
        raise refused_working_directory(path, error) from None


def _send(report: int, data: bytes) -> None:
    # A warden that is gone cannot be told; SIGPIPE is blocked until the very end.
    try:
        os.write(report, data)
    except OSError:
        pass


def _execute(argv: Sequence[bytes], env: Mapping[bytes, bytes]) -> NoReturn:
    """Replace this process.  Raises CannotStartError."""
    refusal: OSError | None = None
    refused_path = argv[0]
    # Pending signals (a SIGTERM that came early) take effect here, not in some program.
    signals.accept_all()
    for path in _candidates(argv[0], env):
        try:
            os.execve(path, tuple(argv), env)
        except OSError as error:
            # As the shells: what cannot be seen is missing, whatever the reason; go on past
            # it and past what is forbidden, and tell of the latter at the end.
            if refusal is None or os.path.exists(path):
                refusal, refused_path = error, path
            if error.errno not in _GO_ON:
                break
    if refusal is None:
        raise CannotStartError("not_found", "program not found: the PATH is empty")
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
    agent.main(CHANNEL_FD)
