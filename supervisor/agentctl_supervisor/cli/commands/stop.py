"""Implements ``agentctl stop`` and ``agentctl kill``: ends several runs at once, with evidence."""

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from agentctl_protocol.control import Step
from agentctl_protocol.records import ContainedRecord
from agentctl_protocol.report import SCHEMA
from agentctl_protocol.spawning import ProcessIdentity
from agentctl_protocol.vocabulary import EXIT_OK, EXIT_SURVIVORS
from agentctl_supervisor.cli import error_lines
from agentctl_supervisor.cli.terminal.console import labelled, out, out_json, plain, say
from agentctl_supervisor.cli.terminal.countdown import Countdown
from agentctl_supervisor.cli.terminal.remaining_processes import Onlooker
from agentctl_supervisor.cli.wording.narration import Narrator
from agentctl_supervisor.cli.wording.phrases import by_whom, called, gone, outcome
from agentctl_supervisor.client import Client, StopOutcome
from agentctl_supervisor.errors import AgentctlError, UsageError
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_supervisor.store.run_directory import Home
from agentctl_supervisor.text.durations import parse_duration, show_duration


class _Order(msgspec.Struct, frozen=True):
    """The options for ending the runs.  ``told``: progress is printed on stderr."""

    kill: bool
    grace_s: float | None
    term_grace_s: float | None
    reason: str
    told: bool


def run(options: argparse.Namespace, *, kill: bool) -> int:
    """Execute the command."""
    client = Client()
    order = _Order(
        kill=kill,
        grace_s=_duration(options, "grace"),
        term_grace_s=_duration(options, "term_grace"),
        reason=options.reason,
        told=options.format != "json",
    )
    refs = _chosen(client, options, "kill" if kill else "stop")
    if not refs and order.told:
        out("nothing is running")
    try:
        with Countdown() as countdown:
            results = _end_all(client, refs, order, countdown)
    except KeyboardInterrupt:
        say("left before the end; agentctl ps -a tells what became of it")
        raise
    if not order.told:
        out_json({"schema": SCHEMA, "runs": [_row(ref, result) for ref, result in results]})
    return _exit_code([result for _, result in results])


def _duration(options: argparse.Namespace, name: str) -> float | None:
    text = getattr(options, name, None)
    return None if text is None else parse_duration(text, "--" + name.replace("_", "-"))


def _chosen(client: Client, options: argparse.Namespace, command: str) -> list[str]:
    if options.all and options.runs:
        raise UsageError("--all and RUN exclude each other", hint=f"agentctl {command} --all")
    if options.all:
        return [report.name or report.id for report in client.listed()]
    if not options.runs:
        raise UsageError(
            f"which run is to be {'killed' if command == 'kill' else 'stopped'}?",
            hint=f"agentctl {command} RUN, agentctl {command} --all; agentctl ps lists them",
        )
    return list(dict.fromkeys(options.runs))


def _end_all(
    client: Client, refs: Sequence[str], order: _Order, countdown: Countdown
) -> list[tuple[str, StopOutcome | AgentctlError]]:
    results: dict[str, StopOutcome | AgentctlError | BaseException] = {}

    def end(ref: str) -> None:
        try:
            results[ref] = _end(client, ref, order, countdown)
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            results[ref] = error

    threads = []
    ours = list(refs[:1])
    for ref in refs[1:]:
        thread = threading.Thread(target=end, args=(ref,), daemon=True)
        try:
            thread.start()
        except RuntimeError:
            ours.append(ref)  # no thread can be started: stop these one after the other
        else:
            threads.append(thread)
    for ref in ours:
        end(ref)
    for thread in threads:
        thread.join()
    told = []
    for ref in refs:
        result = results[ref]
        if isinstance(result, BaseException) and not isinstance(result, AgentctlError):
            raise result
        told.append((ref, result))
    return told


def _end(
    client: Client, ref: str, order: _Order, countdown: Countdown
) -> StopOutcome | AgentctlError:
    narrator = Narrator(ref)
    onlooker = Onlooker(partial(_members, client, ref))

    def tell(step: Step) -> None:
        if not order.told:
            return
        now = time.monotonic()
        if step.step is not None:
            onlooker.glance(step.processes)
        lines = narrator.lines(step, now, onlooker.commands_of(step.processes))
        if lines:
            countdown.say("\n".join(lines))
        countdown.wait(narrator, onlooker)

    try:
        if order.kill:
            outcome_ = client.kill(ref, reason=order.reason, on_step=tell)
        else:
            outcome_ = client.stop(
                ref,
                grace_s=order.grace_s,
                term_grace_s=order.term_grace_s,
                reason=order.reason,
                on_step=tell,
            )
    except AgentctlError as error:
        countdown.done(narrator)
        if order.told:
            for line in error_lines(error):
                countdown.say(line)
        return error
    countdown.done(narrator)
    if order.told:
        _tell(outcome_, countdown)
    return outcome_


def _members(client: Client, ref: str) -> list[ProcessIdentity]:
    """Return the live processes of the run, found by the containment record in its log."""
    from agentctl_supervisor.processes.process_tree import members

    try:
        for record in LogReader(client.directory(ref).path):
            if isinstance(record.body, ContainedRecord):
                return members(record.body)
    except AgentctlError:
        pass  # the stop itself reports the error
    return []


def _tell(result: StopOutcome, countdown: Countdown) -> None:
    try:
        countdown.out(sentence(result))
    except OSError:
        # Nobody reads stdout any more; the other runs must be stopped anyway.
        sys.stdout = None
    if result.already or not result.report.ladder:
        return
    from agentctl_supervisor.cli.commands.typical_stop_time import stop_hint

    if hint := stop_hint(result.report, Home.open(create=False)):
        countdown.say(labelled("hint", hint))


def sentence(result: StopOutcome) -> str:
    """Return a sentence about the outcome of a stop, with the evidence."""
    report = result.report
    name = called(report)
    if result.already:
        return f"{name}: already finished: {outcome(report)}"
    if not result.gone and not report.processes.survivors:
        return f"{name}: NOT proven gone: {plain(report.detail)}"
    if not result.gone:
        left = ", ".join(f"{one.pid} {plain(one.command)}" for one in report.survivor_list[:8])
        return f"{name}: NOT gone, {gone(report.processes)}; left: {left or 'unknown'}"
    time = f" after {show_duration(report.duration_s)}" if report.duration_s is not None else ""
    return f"{name}: {outcome(report)}{by_whom(report)}{time}, {gone(report.processes)}"


def _row(ref: str, result: StopOutcome | AgentctlError) -> dict[str, Any]:
    if isinstance(result, AgentctlError):
        return {"run": ref, "error": str(result), "hint": result.hint}
    return {
        "run": ref,
        "already": result.already,
        "gone": result.gone,
        "report": result.report,
    }


def _exit_code(results: Sequence[StopOutcome | AgentctlError]) -> int:
    """Return 1 if any process survives; else the code of the first error; else 0."""
    if any(isinstance(result, StopOutcome) and not result.gone for result in results):
        return EXIT_SURVIVORS
    return next((r.exit_code for r in results if isinstance(r, AgentctlError)), EXIT_OK)
