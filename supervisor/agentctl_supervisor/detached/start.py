"""Starts a run whose supervisor is a process of its own, and outlives the caller.

That supervisor is a new interpreter (`detached.supervisor_process`).  A double fork would copy
the locks of our threads, and inherit everything that is open here.  The new process has its own
session, no terminal and none of our descriptors.  It gets its order in a memfd.  It answers
through a pipe once the agent is running, or with the reason why the agent is not running.

As with every supervisor, its run ends when it ends.
"""

import os
import subprocess
from typing import Final

import msgspec

from agentctl_protocol.report import Report
from agentctl_protocol.spec import RunSpec, SpecError
from agentctl_supervisor.errors import AgentctlError
from agentctl_supervisor.filesystem.json_file import decode_json, encode_json
from agentctl_supervisor.processes import isolated_python
from agentctl_supervisor.run.launch import working_directory

MAX_ANSWER: Final = 16 << 20


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The one answer of the new supervisor: the run's report at its start, or the error."""

    report: Report | None = None
    error: str = ""
    hint: str = ""
    exit_code: int = 0


class DetachedStartError(AgentctlError):
    """The new supervisor could not start the run; text, hint and exit code are from its error."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.error, answer.hint)
        self.exit_code = answer.exit_code


def start_detached(spec: RunSpec) -> Report:
    """Start a run of *spec*; return its report once its agent is running, or it has ended.

    The run has our environment and our working directory, unless the spec has its own.  This
    blocks.  If it is interrupted, the run is ended, because no one would know its id.

    Raises:
        SpecError: the spec cannot be run as it is written.
        AgentctlError: the run could not be started; the error has the exit code for that.
    """
    if spec.stdin:
        raise SpecError("a detached run has no standard input to read", "leave out -i")
    spec = spec.checked()
    order = msgspec.structs.replace(spec, cwd=working_directory(spec)).written()
    order_fd = os.memfd_create("agentctl-order", os.MFD_CLOEXEC)
    try:
        with open(order_fd, "wb", closefd=False) as file:
            file.write(encode_json(order))
        os.lseek(order_fd, 0, os.SEEK_SET)
        answer = _ask(order_fd)
    finally:
        os.close(order_fd)
    if answer.report is None:
        raise DetachedStartError(answer)
    return answer.report


def _ask(order_fd: int) -> Answer:
    answer_fd, their_answer_fd = os.pipe()
    try:
        try:
            # Popen closes all descriptors in the new process, except pass_fds.
            process = subprocess.Popen(
                isolated_python.command(
                    "agentctl_supervisor.detached.supervisor_process",
                    *(str(order_fd), str(their_answer_fd)),
                ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(order_fd, their_answer_fd),
                start_new_session=True,
                # A directory that stays in use as a working directory could not be unmounted or
                # removed.
                cwd="/",
                env=_environment(),
            )
        finally:
            os.close(their_answer_fd)
        with open(answer_fd, "rb", closefd=False) as answers:
            data = answers.read(MAX_ANSWER)
    finally:
        os.close(answer_fd)
    if not data:
        process.wait()
        return Answer(
            error="the run's supervisor ended before it began",
            hint="agentctl doctor",
            exit_code=125,
        )
    # It outlives us and init will reap it.  So Popen must neither wait for it nor warn about it.
    process.returncode = 0
    return decode_json(data, Answer)


def _environment() -> dict[str, str]:
    environ = dict(os.environ)
    if own := environ.get("AGENTCTL_HOME"):
        # A relative path would name another place from another working directory.
        environ["AGENTCTL_HOME"] = os.path.abspath(own)
    return environ
