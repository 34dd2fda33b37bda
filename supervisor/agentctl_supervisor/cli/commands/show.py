"""Implements ``agentctl show``: prints one run on one page, or its whole report as JSON."""

import argparse
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from agentctl_protocol.records import Output
from agentctl_protocol.report import Call, Report
from agentctl_protocol.vocabulary import Result
from agentctl_supervisor.cli.terminal.console import clip, line_width, out, out_json, plain, width
from agentctl_supervisor.cli.wording import waiting_calls, workspace_words
from agentctl_supervisor.cli.wording.phrases import (
    RUNG_WORDS,
    by_whom,
    called,
    gone,
    outcome,
    show_limit,
    show_size,
    took,
)
from agentctl_supervisor.client import Client
from agentctl_supervisor.errors import UsageError
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_supervisor.store.run_directory import RunDirectory
from agentctl_supervisor.text.durations import show_duration
from agentctl_supervisor.text.json_text import json_line

_LABEL_COLUMNS: Final = 11
_LAST_LINES: Final = 10
_LAST_BYTES: Final = 1 << 16
_CALLS: Final = 8


def run(options: argparse.Namespace) -> int:
    """Execute the command."""
    if len(options.runs) != 1:
        raise UsageError(
            "which run is to be shown?", hint="agentctl show RUN; agentctl ps -a lists them"
        )
    client = Client()
    report = client.show(options.runs[0])
    if options.format == "json":
        out_json(report)
        return 0
    directory = client.directory(report.id)
    with directory.while_there():
        last = last_lines(directory)
    for line in page(report, last, datetime.now(UTC), line_width()):
        out(line)
    return 0


def page(report: Report, last: Sequence[str], now: datetime, columns: int) -> list[str]:
    """Return the lines of the page, none wider than *columns*."""
    state = outcome(report)
    if report.finished:
        state = f"finished: {state}{by_whom(report)}"
    head = f"{called(report)}  {report.id}" if report.name else report.id
    gap = max(columns - width(head) - width(state), 2)
    lines = [clip(head + " " * gap + state, columns)]
    for label, text in _facts(report, now):
        lines.extend(_labelled(label, plain(text), columns))
    if last:
        lines.append("  last output")
        lines.extend(clip(f"    {line}", columns).rstrip() for line in last)
    return lines


def _facts(report: Report, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield labels and texts about *report*, in this order; unknown facts are left out."""
    yield "command", report.command
    if report.resumes is not None:
        yield "resumes", report.resumes
    if report.tags:
        yield "tags", "  ".join(f"{key}={value}" for key, value in report.tags.items())
    yield "time", _time(report, now)
    if report.detail and report.result is not Result.SUCCEEDED:
        yield "why", report.detail
    for fired in report.conditions:
        yield "condition", f"{fired.condition}: {fired.sentence}, after {fired.at_s:.1f} s"
    if report.error:
        yield "error", report.error
    yield from _waiting(report)
    if report.ladder:
        yield "stop", _ladder(report)
    if report.result is not Result.REFUSED and (report.finished or report.processes.seen):
        yield "processes", _processes(report)
    for survivor in report.survivor_list:
        yield "LEFT", f"{survivor.pid} {survivor.command}"
    yield from _products(report)
    yield from workspace_words.facts(report)
    if report.unseen_variables:
        named = ", ".join(report.unseen_variables)
        yield "not seen", f"files that {named} names: --ro PATH shows them to the run"
    level = f"{report.sandbox}{_origin(report, 'sandbox')}"
    yield "sandbox", ": ".join(filter(None, (level, ", ".join(report.layers))))
    if report.limits:
        yield "limits", ", ".join(show_limit(limit) for limit in report.limits)
    yield "log", _log(report)


def _products(report: Report) -> Iterator[tuple[str, str]]:
    """Yield what the agent says that it did and made."""
    if report.value is not None:
        yield "value", _json(report.value)
    yield from _calls(report.calls)
    for model, used in report.usage.items():
        tokens = f"{used.prompt_tokens} + {used.completion_tokens} tokens"
        yield "usage", f"{model or 'model not named'}: {tokens} ({used.quality})"
    if report.partial_text:
        yield "text", report.partial_text[-400:]
    if report.checkpoint is not None:
        yield "checkpoint", _json(report.checkpoint)
    for artifact in report.artifacts:
        yield "artifact", artifact


def _time(report: Report, now: datetime) -> str:
    began = report.started_at or report.created_at
    text = f"{began.astimezone():%Y-%m-%d %H:%M:%S} -> "
    if report.ended_at is not None:
        text += f"{report.ended_at.astimezone():%H:%M:%S}, "
    elif not report.finished:
        text += "now, "
    text += show_duration(took(report, now))
    if report.cpu_s is not None:
        text += f", cpu {show_duration(report.cpu_s)}"
    return text


def _ladder(report: Report) -> str:
    """Return the rungs of the ladder with their durations and answers.

    Example: ``asked to end 5.0 s (no) > SIGTERM 2.0 s (no) > SIGKILL 0.01 s (yes)``.
    """
    ends = [step.at for step in report.ladder[1:]] + [report.ended_at]
    steps = []
    for step, end in zip(report.ladder, ends, strict=True):
        text = RUNG_WORDS[step.step]
        if end is not None:
            text += f" {show_duration((end - step.at).total_seconds())}"
        steps.append(f"{text} ({step.answered})" if step.answered else text)
    return " > ".join(steps)


def _processes(report: Report) -> str:
    if not report.finished:
        return f"{report.processes.seen} seen"
    text = gone(report.processes)
    return f"{text}, {report.processes.killed} killed" if report.processes.killed else text


def _calls(calls: Sequence[Call]) -> Iterator[tuple[str, str]]:
    if len(calls) > _CALLS:
        yield "calls", f"{len(calls)}, the last {_CALLS} of them:"
    for call in calls[-_CALLS:]:
        text = f"{call.kind} {call.name}: {call.outcome}"
        if call.outcome == "interrupted":
            text += ", side effect unknown"
        if call.duration_s is not None:
            text += f", {show_duration(call.duration_s)}"
        yield "call", f"{text}: {call.error}" if call.error else text


def _waiting(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the calls that wait for approval, and the commands that decide on the first."""
    for line in waiting_calls.lines(report.waiting):
        yield "WAITING", line
    if report.waiting:
        first = report.waiting[0]
        yield "", waiting_calls.decide_by(called(report), first.number, first.id)


def _origin(report: Report, key: str) -> str:
    """Return the origin of a setting, like `` (flag --net)``, or empty for a default."""
    origin = report.origins.get(key, "default")
    return "" if origin == "default" else f" ({origin})"


def _log(report: Report) -> str:
    log = report.log
    text = f"{log.events} events, {show_size(log.bytes)}"
    text += f"; output {show_size(report.output_bytes)}"
    if log.torn_bytes:
        text += f"; {log.torn_bytes} bytes torn off"
    if report.dropped_bytes:
        text += f"; {report.dropped_bytes} bytes dropped"
    return "; ".join((text, *log.damaged))


def _json(value: object) -> str:
    text = json_line(value)
    return text if len(text) <= 400 else text[:397] + "..."


def _labelled(label: str, text: str, columns: int) -> Iterator[str]:
    """Yield *label* and *text*, wrapped."""
    from textwrap import wrap

    indent = 2 + _LABEL_COLUMNS
    for number, line in enumerate(
        wrap(text, columns - indent, max_lines=8, placeholder=" ...") or [""]
    ):
        front = label if number == 0 else ""
        yield clip(f"  {front.ljust(_LABEL_COLUMNS)}{line}", columns).rstrip()


def last_lines(directory: RunDirectory) -> list[str]:
    """Return the last lines of the run's stdout and stderr together, not yet made plain."""
    pieces: deque[bytes] = deque()
    kept = 0
    for record in LogReader(directory.path):
        if isinstance(record.body, Output):
            pieces.append(record.body.data)
            kept += len(record.body.data)
            while kept - len(pieces[0]) >= _LAST_BYTES:
                kept -= len(pieces.popleft())
    text = b"".join(pieces).decode("utf-8", "replace").replace("\r\n", "\n").rstrip("\n")
    return text.split("\n")[-_LAST_LINES:] if text else []
