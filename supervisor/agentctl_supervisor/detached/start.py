"""Starts a run whose supervisor is a process of its own and outlives whoever asked for it.

That supervisor is a fresh interpreter (`detached.supervisor_process`): a double fork would
copy the locks of our threads, and hand on everything that is open here.  It has its own
session, no terminal and none of our descriptors; what to run comes to it in a memfd, and it
answers through a pipe once the agent is running, or with the reason why it is not.

Like every supervisor it is the one that ends its run: when it goes, the run goes.
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
    """What the new supervisor says once: the run's report as it starts, or what went wrong."""

    report: Report | None = None
    error: str = ""
    hint: str = ""
    exit_code: int = 0


class DetachedStartError(AgentctlError):
    """The new supervisor could not start the run; the error is the one that it met."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.error, answer.hint)
        self.exit_code = answer.exit_code


def start_detached(spec: RunSpec) -> Report:
    """The report of a new run of *spec* once its agent is running, or it ended before that.

    The run has our environment and our working directory, unless the spec has its own.
    Blocks; if it is cut short, the run is ended, because nobody knows its id.

    Raises:
        SpecError: the spec cannot be run as it is written.
        AgentctlError: the run could not be started; with the exit code for it.
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
            # Popen closes every other descriptor in the new process; pass_fds stay.
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
                # A working directory that is held could not be unmounted or removed.
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
    # It lives on, and init will reap it: not ours to wait for, nor to warn about.
    process.returncode = 0
    return decode_json(data, Answer)


def _environment() -> dict[str, str]:
    environ = dict(os.environ)
    if own := environ.get("AGENTCTL_HOME"):
        # It would mean another place in another working directory.
        environ["AGENTCTL_HOME"] = os.path.abspath(own)
    return environ
