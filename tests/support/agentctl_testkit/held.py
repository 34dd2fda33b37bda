"""A run that this process holds itself: its log says what the test wants, when it wants it."""

import os
from typing import Self

from agentctl_protocol.messages import ChildMessage
from agentctl_protocol.records import Created, End, Exit, Output, Started, SupervisorRecord
from agentctl_protocol.report import Report
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import By
from agentctl_supervisor.processes.process_tree import boot_id, identity_of
from agentctl_supervisor.recover.recovery import recover
from agentctl_supervisor.store.event_log import LogWriter
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AgentctlHome


class HeldRun:
    """A live run without processes, in *home*; segments are small unless *segment_bytes* says so.

    A context manager, which finishes it.
    """

    def __init__(
        self,
        home: AgentctlHome,
        name: str | None = None,
        *,
        segment_bytes: int = 4096,
        socket: str = "/nowhere",
        argv: tuple[str, ...] = ("/bin/true",),
    ) -> None:
        store = Home.open({"AGENTCTL_HOME": str(home.root)}, create=True)
        self.directory = store.create_run(RunSpec(argv=argv, name=name))
        self.id = self.directory.id
        self.log = LogWriter(self.directory.path, self.id, segment_bytes=segment_bytes)
        own = identity_of(os.getpid())
        assert own is not None
        self.append(Created(supervisor=own, boot_id=boot_id(), socket=socket))
        self.append(Started())
        self._finished = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def append(self, body: SupervisorRecord) -> int:
        """Write a fact; its number."""
        return self.log.append(body).seq

    def say(self, message: ChildMessage, count: int = 1) -> int:
        """Write what a child said; its (first) number."""
        return self.log.append(message, By.CHILD, count).seq

    def write(self, data: bytes, stream: str = "stdout") -> None:
        """Write output."""
        self.append(Output(stream="stderr" if stream == "stderr" else "stdout", data=data))

    @property
    def segments(self) -> int:
        """How many files the log has."""
        return len(list(self.directory.path.glob("0*.log")))

    def finish(self, code: int = 0) -> Report:
        """End it as if its agent had exited with *code*."""
        if not self._finished:
            self._finished = True
            self.append(Exit(code=code))
            self.append(End())
            self.log.close()
            self.directory.unlock()
        return recover(self.directory)
