"""A probe that takes all steps of the confinement on this machine, in a throwaway process.

Many kernels and containers allow the first steps and refuse a later one. The probe therefore draws
no conclusion from settings. It does what `init` does for a run, and reads the result back.

``python -m agentctl_child.keepers.chain_probe`` reads an array of `Launch` in msgpack from
standard input. It prints a JSON map from the level of each launch to its `Chain`.
"""

import os
import sys
from typing import Final, NoReturn

import msgspec

from agentctl_child.keepers import layers
from agentctl_child.keepers.confinement import Confinement, seal_against
from agentctl_child.keepers.enclosure import Enclosure, enclosure_for, facts_of, namespaces_of
from agentctl_child.keepers.refusal import CannotStartError, refused_by_system, why_no_namespace
from agentctl_child.keepers.steps import Fact, steps_of
from agentctl_child.sandbox import clone, injected_failures, prctl
from agentctl_protocol.spawning import Launch
from agentctl_protocol.vocabulary import Containment

CONFIRMED: Final = "confirmed by the kernel"
"""The name of the entry after the steps: the layers, read back from the kernel."""

_LONGEST: Final = 1 << 16
_LONGEST_ORDER: Final = 1 << 22
_NAMESPACES: Final = {
    "user": clone.NEW_USER,
    "pid": clone.NEW_PIDS,
    "mount": clone.NEW_MOUNTS,
    "ipc": clone.NEW_IPC,
    "uts": clone.NEW_UTS,
    "network": clone.NEW_NETWORK,
}


class Chain(msgspec.Struct, frozen=True):
    """The outcome of the steps of one level.

    ``steps``: maps each step's name, in order, to the reason of its failure, or to an empty
    string. Steps after a failed one were not taken. ``layers``: the layers that the kernel then
    confirms. ``hint``: the hint that a run would show.
    """

    steps: dict[str, str]
    layers: tuple[str, ...] = ()
    hint: str = ""


def walk(launch: Launch) -> Chain:
    """Take the steps once; takes about 5 ms. Raises OSError if not even a fork is possible."""
    facts = facts_of(launch, os.geteuid())
    flags = 0
    if launch.containment is Containment.PID_NAMESPACE:
        flags = namespaces_of(launch.sandbox, facts)
    # Before the clone: in a user namespace without a map, every uid is the overflow uid, 65534.
    enclosure = enclosure_for(launch, facts)
    answer, question = os.pipe()
    try:
        pid, pidfd = clone.fork(flags)
    except OSError as error:
        os.close(answer)
        os.close(question)
        if not flags:
            raise
        return Chain({"namespaces": _which(flags) or why_no_namespace(error)})
    if pid == 0:
        _try(question, launch, enclosure)
    os.close(question)
    with open(answer, "rb") as file:
        data = file.read(_LONGEST)
    os.waitpid(pid, 0)
    os.close(pidfd)
    if not data:
        return Chain({"process": "it died"})
    return msgspec.json.decode(data, type=Chain)


def _which(wanted: int) -> str:
    """Return the first namespace that cannot be made, adding them one by one, and the reason."""
    flags = 0
    for name, flag in _NAMESPACES.items():
        if not wanted & flag:
            continue
        flags |= flag
        try:
            pid, pidfd = clone.fork(flags)
        except OSError as error:
            return f"no {name} namespace: {why_no_namespace(error)}"
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        os.close(pidfd)
    return ""


def _try(question: int, launch: Launch, enclosure: Enclosure) -> NoReturn:
    chain = Chain({"process": "it did not come to an end"})
    try:
        prctl.signal_at_parents_death()
        injected_failures.arm("probe")
        chain = _take(launch, enclosure)
    finally:
        os.write(question, msgspec.json.encode(chain)[:_LONGEST])
        os._exit(0)


def _take(launch: Launch, enclosure: Enclosure) -> Chain:
    facts = enclosure.facts
    contained = launch.containment is Containment.PID_NAMESPACE
    try:
        confinement = _confinement(launch, facts)
        cgroup = layers.unified_cgroup()
        if contained:
            enclosure.enter()
        found = confinement.apply(cgroup if contained else None)
    except CannotStartError as error:
        return _failed(launch, facts, error)
    except OSError as error:
        return _failed(launch, facts, refused_by_system("a step", error))
    return Chain(dict.fromkeys((*_names(launch, facts), CONFIRMED), ""), found)


def _confinement(launch: Launch, facts: frozenset[Fact]) -> Confinement:
    seal = None
    if launch.containment is Containment.SUBREAPER:
        # Our parent process takes the places of spawner and supervisor.
        seal = seal_against(os.getppid(), os.getppid(), os.getppid())
    return Confinement(
        containment=launch.containment,
        sandbox=launch.sandbox,
        outside=_OUTSIDE,
        host_uid=launch.host_uid,
        seal=seal,
        view=launch.view,
        network=launch.network,
        facts=facts,
    )


def _names(launch: Launch, facts: frozenset[Fact]) -> list[str]:
    return [step.name for step in steps_of(launch.sandbox, facts)]


def _failed(launch: Launch, facts: frozenset[Fact], error: CannotStartError) -> Chain:
    """Return the steps up to the failed one; if all steps passed, the confirmation failed."""
    names = _names(launch, facts)
    failed = error.step or CONFIRMED
    taken = names[: names.index(failed)] if failed in names else names
    return Chain({**dict.fromkeys(taken, ""), failed: str(error)}, hint=error.hint)


_OUTSIDE: Final = layers.observe()


def main() -> int:
    """Print a chain for each launch, by level."""
    order = sys.stdin.buffer.read(_LONGEST_ORDER)
    launches = msgspec.msgpack.decode(order, type=tuple[Launch, ...])
    found = {str(launch.sandbox): walk(launch) for launch in launches}
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
