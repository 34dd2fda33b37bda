"""Reads every log of the session once more, at its end.

`agentctl_testkit.audit` sees to it that a log keeps its promises by itself.  Here it is
also read as agentctl reads it: nothing of it is damaged, and the report that was
written is what the log folds to, and nothing else.

A test that breaks a log on purpose leaves the file `BROKEN` beside the state directory's
runs, or above.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from agentctl_protocol.records import End
from agentctl_protocol.report import Report
from agentctl_supervisor.errors import AgentctlError
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.store.log_reader import LogReader, segment_name
from agentctl_supervisor.store.run_directory import RunDirectory
from agentctl_testkit.audit import audit

BROKEN: Final = "broken-on-purpose"


def logs_below(base: Path) -> Iterator[Path]:
    """The directories of all runs in all state directories below *base*."""
    for first in base.rglob(f"runs/r-*/{segment_name(1)}"):
        directory = first.parent
        above = [path for path in directory.parents if path.is_relative_to(base)]
        if not any((path / BROKEN).exists() for path in above):
            yield directory


def faults(directory: Path) -> list[str]:
    """What is wrong with the log of the run in *directory*, one sentence each."""
    try:
        return [*audit(directory), *_faults(RunDirectory(directory))]
    except AgentctlError as error:
        return [str(error)]


def _faults(run: RunDirectory) -> Iterator[str]:
    fold = Fold(run.id, run.read_spec(), run.created_at)
    reader = LogReader(run.path)
    ended = False
    for record in reader:
        fold.apply(record)
        ended = ended or isinstance(record.body, End)
    yield from reader.damaged
    if ended and reader.torn_bytes:
        yield f"{reader.torn_bytes} torn bytes behind the end record"
    written = run.read_report()
    if written is None:
        return
    # Written out and read back, as the report was.
    meant = msgspec.json.decode(
        msgspec.json.encode(fold.report(log_bytes=reader.bytes, torn_bytes=reader.torn_bytes)),
        type=Report,
    )
    for name in Report.__struct_fields__:
        if getattr(written, name) != getattr(meant, name):
            yield (
                f"its report says {name} = {getattr(written, name)!r:.300},"
                f" its log says {getattr(meant, name)!r:.300}"
            )
