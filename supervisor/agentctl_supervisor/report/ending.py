"""Makes the records that say how a run ended, from its warden's last message.  Pure."""

from signal import SIGKILL

from agentctl_protocol.records import (
    Answered,
    Exit,
    Lost,
    Observed,
    RefusedRecord,
    RungRecord,
    Stop,
    SupervisorRecord,
)
from agentctl_protocol.report import Actor, Processes
from agentctl_protocol.spawning import Exited, Refused
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Reason, Result, Rung

_REFUSED_REASONS = {
    "not_found": Reason.NOT_FOUND,
    "not_executable": Reason.NOT_EXECUTABLE,
    "sandbox": Reason.SANDBOX,
    "system": Reason.SANDBOX,
}
_NOT_SEEN = "its warden ended it: which files were open then is not known"


def how_it_ended(
    last_word: Exited | Refused | None,
    spec: RunSpec,
    *,
    stopped: bool,
    last_rung: Rung | None,
    spawner_died: bool,
    gave_up: bool,
    out_of_memory: str = "",
) -> list[SupervisorRecord]:
    """Return the records about the end of a run, in the order in which to append them.

    *last_word* is None if the warden died without a last message, or (*gave_up*) if the tree
    could not be emptied.  *stopped*: a stop record exists already and explains the rest.
    *last_rung*: the last rung that the supervisor itself took.  *out_of_memory*: what the kernel
    reports about lack of memory; this may have been the cause of a SIGKILL.
    """
    match last_word:
        case Refused(fault=fault, detail=detail, hint=hint):
            return [RefusedRecord(_REFUSED_REASONS[fault], detail, hint)]
        case Exited() as word:
            ended = exit_record(word, out_of_memory)
            by_warden: list[SupervisorRecord] = []
            if word.deadline and last_rung is not Rung.SIGKILL:
                # The warden's own timer fired: nobody had requested or recorded this SIGKILL.
                by_warden = [
                    RungRecord(
                        step=Rung.SIGKILL,
                        at_ns=word.at_ns,
                        open_unread=_NOT_SEEN,
                        at_least=True,
                    ),
                    Answered(step=Rung.SIGKILL, how="yes"),
                ]
            if stopped:
                return [*by_warden, ended]
            if word.deadline:
                return [_time_limit(spec), *by_warden, ended]
            return [Lost(detail="its spawner died"), ended] if spawner_died else [ended]
        case None:
            what = "it could not be ended" if gave_up else "its warden was killed"
            known = f"; {out_of_memory}" if out_of_memory else ""
            return [Lost(detail=f"{what}: how the agent ended is not known{known}")]


def _may_be_killed(word: Exited) -> bool:
    """Return True if a SIGKILL may have ended it or its child: a shell then exits with 137."""
    unknown = word.code is None and word.signal is None
    return unknown or word.signal == SIGKILL or word.code == 128 + SIGKILL


def exit_record(word: Exited, out_of_memory: str = "") -> Exit:
    """Return the record of a warden's last message; *out_of_memory*: see `how_it_ended`."""
    return Exit(
        word.code,
        word.signal,
        word.cpu_s,
        word.max_rss_bytes,
        word.left,
        word.at_ns,
        detail=out_of_memory if _may_be_killed(word) else "",
        orphaned=word.orphaned,
    )


def processes_at_end(
    last_word: Exited | Refused | None,
    counted: Processes,
    observed: Observed | None,
    *,
    started: bool,
    last_rung: Rung | None = None,
) -> Processes:
    """Combine the counts of the supervisor, the warden, and a client that acted in its place.

    An agent that ended by itself counts as seen.  The processes that it left behind count as seen
    and as killed.  Keepers that end a run by themselves count no processes, so the supervisor's
    count is then only a minimum.  *last_rung*: as in `how_it_ended`; before its SIGKILL, the
    supervisor counted all processes.
    """
    seen, killed, at_least = counted.seen, counted.killed, counted.at_least
    if isinstance(last_word, Exited):
        seen, killed = max(seen, last_word.left + 1), killed + last_word.left
        if last_word.deadline or last_word.orphaned:
            killed = max(killed, 1)
    if started and _ended_by_keepers(last_word) and last_rung is not Rung.SIGKILL:
        seen, at_least = max(seen, 1), True
    if observed is not None:
        seen = max(seen, observed.processes.seen)
        killed = max(killed, observed.processes.killed)
        at_least = at_least or observed.processes.at_least
    return Processes(seen, min(killed, seen), counted.survivors, at_least)


def _ended_by_keepers(last_word: Exited | Refused | None) -> bool:
    """Return True if the keepers ended the run by themselves, or if nobody knows how it ended."""
    if isinstance(last_word, Exited):
        return last_word.deadline or last_word.orphaned
    return last_word is None


def end_detail(last_word: Exited | Refused | None) -> str:
    """Return a further sentence about the end, for people; often empty."""
    if isinstance(last_word, Exited) and last_word.blocked_by is not None:
        return f"its end is held up by process {last_word.blocked_by}, which is outside"
    return ""


def _time_limit(spec: RunSpec) -> Stop:
    """Return the stop that the supervisor missed: it was frozen, or the warden was faster."""
    limit = "" if spec.time_s is None else f" of {spec.time_s:g} s"
    return Stop(
        result=Result.LIMIT,
        reason=Reason.TIME,
        detail=f"time limit{limit}, enforced by the warden",
        actor=Actor(kind="limit", id="time"),
        grace_s=spec.grace_s,
        term_grace_s=spec.term_grace_s,
    )
