"""Writes down how a run ended, once its tree is empty or given up: all but the last record.

What it left behind in channel and pipes is read in turns with other runs, so this can take
a while; the order of the records is that of the events all the same.
"""

from collections.abc import Sequence

from agentctl_protocol.records import End, Observed
from agentctl_protocol.report import Processes, Survivor
from agentctl_protocol.spawning import Exited, ProcessIdentity, Refused
from agentctl_protocol.vocabulary import Containment
from agentctl_supervisor.processes import oom_kills
from agentctl_supervisor.processes.process_tree import command_line, marked
from agentctl_supervisor.report.ending import end_detail, how_it_ended, processes_at_end
from agentctl_supervisor.run.conversation import ENDED, Conversation
from agentctl_supervisor.run.live_log import RunLog
from agentctl_supervisor.run.output import OutputPump
from agentctl_supervisor.stop.ladder import TreeEmpty
from agentctl_supervisor.stop.ladder_run import Climb


async def write_how_it_ended(
    log: RunLog,
    climb: Climb,
    conversation: Conversation,
    outputs: Sequence[OutputPump],
    last_word: Exited | Refused | None,
    *,
    spawner_died: bool,
    gave_up: bool,
) -> End:
    """Decide the outcome, by the *last_word* of the keepers; the record to end with."""
    # What the agent said before it died comes before how it died: a result in the
    # channel's buffer was sent before the exit, and decides.  But a call that it asked for
    # is one that nobody makes.
    conversation.close_gate(ENDED)
    log.dropped_bytes += await conversation.drain()
    for record in how_it_ended(
        last_word,
        log.fold.spec,
        stopped=log.fold.stop is not None,
        last_rung=climb.rung,
        spawner_died=spawner_died,
        gave_up=gave_up,
        out_of_memory=oom_kills.while_there_was(log.fold),
    ):
        log.decide(record)
    for output in outputs:
        await output.drain()
    survivors = _survivors(log, climb, last_word)
    if not survivors:
        climb.happen(TreeEmpty())
    observed = _observed_by_others(log, climb)
    log.append_estimates(over=True)
    counted = Processes(
        len(climb.seen), climb.killed, len(survivors), at_least=not climb.is_all_seen
    )
    return End(
        processes=processes_at_end(
            last_word, counted, observed, started=log.fold.started, last_rung=climb.rung
        ),
        survivors=tuple(survivors),
        torn_bytes=conversation.torn_bytes,
        dropped_bytes=log.dropped_bytes,
        detail=end_detail(last_word),
    )


def _observed_by_others(log: RunLog, climb: Climb) -> Observed | None:
    """What was done in our place while we did not answer; its steps are written down now."""
    stop = log.fold.stop
    if stop is None or not stop.intent or climb.begun:
        return None
    observed = log.observed()
    for step in observed.steps if observed else ():
        log.append(step)
    return observed


def _survivors(log: RunLog, climb: Climb, last_word: Exited | Refused | None) -> list[Survivor]:
    """Who is left: what the warden says and, after a stop or a loss, what we see ourselves."""
    left: set[ProcessIdentity] = set()
    if isinstance(last_word, Exited):
        left.update(last_word.survivors)
    if climb.begun or last_word is None:
        left.update(climb.left())
    contained = log.fold.contained
    if (
        last_word is None
        and contained is not None
        and contained.containment is Containment.SUBREAPER
    ):
        # Its warden is dead, so only what they say themselves tells who was of the run.
        left.update(marked(log.fold.run_id, contained.warden.start_time))
    return [Survivor(identity.pid, command_line(identity.pid)) for identity in left]
