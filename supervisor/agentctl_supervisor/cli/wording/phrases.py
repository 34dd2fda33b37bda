"""Describes a report in words for people.  Pure functions."""

import signal as signals
from datetime import datetime
from typing import Final

from agentctl_protocol.report import Limit, Processes, Report
from agentctl_protocol.vocabulary import LIMIT_REASONS, Network, Reason, Result, Rung
from agentctl_supervisor.cli.terminal.console import plain
from agentctl_supervisor.store.finished_index import Summary
from agentctl_supervisor.text.durations import show_duration

RUNG_WORDS: Final = {
    Rung.ASKED: "asked to end",
    Rung.SIGTERM: "SIGTERM",
    Rung.SIGKILL: "SIGKILL",
}
_PLAIN: Final = frozenset({Result.SUCCEEDED, Result.STOPPED})
_SAID: Final = frozenset({Reason.EXIT, Reason.SIGNAL})
_LIMIT_WORDS: Final = {Reason.CPU: "CPU time limit", Reason.PIDS: "process limit"}


def called(report: Report | Summary) -> str:
    """Return the run's name, or its id if it has no name."""
    return plain(report.name or report.id)


def cut_short(text: str, most: int) -> str:
    """Return *text*, or its beginning and its length if it has more than *most* characters.

    The length tells the user, before an approval, that a part is not shown.
    """
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def outcome(report: Report | Summary) -> str:
    """Return the state or result in a few words.

    Examples: ``running``, ``failed (exit 3)``, ``time limit``.
    """
    if report.result is None:
        return str(report.state)
    if report.result is Result.LIMIT and report.reason in LIMIT_REASONS:
        return _LIMIT_WORDS.get(report.reason, f"{report.reason} limit")
    if report.result is Result.FAILED:
        return f"failed ({_failure(report)})"
    return str(report.result)


def _failure(report: Report | Summary) -> str:
    if report.signal is not None:
        return signal_name(report.signal)
    if report.reason is Reason.EXIT or report.reason is None:
        return f"exit {report.exit_code}"
    return str(report.reason)


def signal_name(number: int) -> str:
    """Return the name of a signal: ``SIGSEGV`` for 11."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def by_whom(report: Report) -> str:
    """Return text like `` by user``, or an empty string for a run that ended by itself."""
    if report.actor is None or report.result not in (Result.STOPPED, Result.TERMINATED):
        return ""
    kind, who = plain(report.actor.kind), plain(report.actor.id)
    if kind == "terminal":
        return " from its terminal"
    if kind == "uid":
        return f" by uid {who}"
    return f" by {kind} {who}".rstrip()


def gone(processes: Processes) -> str:
    """Return the evidence: ``4 of 4 processes gone``."""
    dead = processes.seen - processes.survivors
    if processes.at_least:
        left = f", {processes.survivors} left" if processes.survivors else ", none left"
        return f"at least {dead} {'process' if dead == 1 else 'processes'} gone{left}"
    if processes.seen == 0:
        return "no process left" if not processes.survivors else f"{processes.survivors} left"
    noun = "process" if processes.seen == 1 else "processes"
    return f"{dead} of {processes.seen} {noun} gone"


def show_size(count: int) -> str:
    """Return *count* bytes as text for people: ``512 bytes``, ``10 KiB``, ``1.5 GiB``."""
    if count < 1024:
        return f"{count} bytes"
    size, unit = count / 1024, "KiB"
    for bigger in ("MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, bigger
    return f"{size:.1f}".removesuffix(".0") + f" {unit}"


def show_limit(limit: Limit) -> str:
    """Return a limit with its origin: ``time 10.0 s (flag --time)``."""
    is_size = limit.name in ("output", "memory", "disk")
    value = show_size(int(limit.value)) if is_size else f"{limit.value:g}"
    if limit.name in ("time", "cpu", "idle"):
        value = show_duration(limit.value)
    return f"{limit.name} {value} ({limit.origin})"


def took(report: Report, now: datetime) -> float:
    """Return the seconds that the run has lasted until now or, if it has ended, in total."""
    if report.duration_s is not None:
        return report.duration_s
    return max(
        ((report.ended_at or now) - (report.started_at or report.created_at)).total_seconds(), 0
    )


def summary(report: Report, now: datetime) -> str:
    """Return one line about the end of a run: result, reason, time, evidence."""
    parts = [f"{called(report)} {outcome(report)}{by_whom(report)}"]
    if report.result is not Result.REFUSED:
        parts[0] += f" after {show_duration(took(report, now))}"
    why = plain(report.detail)
    # The outcome already shows exit codes and signals, and `by_whom` shows who stopped the run.
    if why and report.result not in _PLAIN and report.reason not in _SAID:
        parts.append(why if len(why) <= 200 else why[:197] + "...")
    if report.result is Result.FAILED and report.network is Network.NONE:
        parts.append("without a network")
    if report.processes.seen or report.processes.survivors:
        parts.append(gone(report.processes))
    return ", ".join(parts)
