"""Writes the records of a run's end, except the last, once its tree is empty or given up.

The remaining data in the channel and the pipes is read in turns with other runs, so this can
take a while.  The records are still in the order of the events.
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
    """Decide the outcome from the *last_word* of the keepers; return the last record."""
    # Read the agent's messages before its exit is written down: a result in the channel's
    # buffer was sent before the exit, and decides the outcome.  The gate is closed first,
    # because nobody is left to make a call that the agent asked for.
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
    """Return what a client did in our place while we did not answer; log its steps now."""
    stop = log.fold.stop
    if stop is None or not stop.intent or climb.begun:
        return None
    observed = log.observed()
    for step in observed.steps if observed else ():
        log.append(step)
    return observed


def _survivors(log: RunLog, climb: Climb, last_word: Exited | Refused | None) -> list[Survivor]:
    """Return the processes that are left, as the warden reports them.

    After a stop, or if the warden reported nothing, also those that we see ourselves.
    """
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
        # The warden is dead, so only the processes' own marks tell that they belong to the run.
        left.update(marked(log.fold.run_id, contained.warden.start_time))
    return [Survivor(identity.pid, command_line(identity.pid)) for identity in left]
