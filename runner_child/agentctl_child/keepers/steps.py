"""The steps of confinement, in the order in which they are taken.

The list is data: what is done, at which level, and why in this place. The keepers walk through it,
and ``python -m agentctl_child.keepers.steps LEVEL`` prints it as JSON.

The uid of root's runs is changed after the mounts, not before the namespaces. Without a user
namespace, mounting needs root's privilege. With a user namespace, no mount could show the
workspace's owner as the run's uid.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal

import msgspec

from agentctl_child.keepers.refusal import CannotStartError, refused_step
from agentctl_protocol.vocabulary import Sandbox

Fact = Literal["pid namespace", "user namespace", "fallback", "own uid", "network none"]
"""A fact that decides, beside the level, if a step is taken: a property of the run."""


class Step(msgspec.Struct, frozen=True):
    """A restriction of an agent.

    ``stage``: ``fork`` is done by the clone that makes init. ``enclosure`` is done by init in its
    new namespaces. ``surrender`` is done by init, or in the fallback by the agent's own process.
    ``when``: all of these facts must hold.
    """

    name: str
    stage: Literal["fork", "enclosure", "surrender"]
    levels: tuple[Sandbox, ...]
    what: str
    why: str
    when: tuple[Fact, ...] = ()


_ALL: Final = tuple(Sandbox)
_STRICT: Final = (Sandbox.STRICT,)
_CONFINED: Final = (Sandbox.STRICT, Sandbox.STANDARD)
_WEAKER: Final = (Sandbox.STANDARD, Sandbox.BASIC, Sandbox.NONE)

STEPS: Final = (
    Step(
        "namespaces",
        "fork",
        _ALL,
        "new pid and mount namespaces; for an ordinary user a user namespace too; at strict also"
        " ipc and uts, and without a network its own",
        "by one clone, so that the warden itself stays outside of all of them",
        ("pid namespace",),
    ),
    Step(
        "identity",
        "enclosure",
        _ALL,
        "the user namespace knows one user and one group, the caller's, by their own numbers",
        "before anything else: until then we are nobody there, and may do nothing",
        ("user namespace",),
    ),
    Step(
        "user's counters",
        "enclosure",
        _ALL,
        "of what the kernel counts for the caller, a run gets a part: inotify's instances and"
        " watches",
        "as limits of the user namespace, which only its owner sets, while /proc can be written to",
        ("user namespace",),
    ),
    Step(
        "out-of-memory rank",
        "enclosure",
        _ALL,
        "when memory is used up, the kernel kills runs before all others",
        "while /proc can be written to; the setting is inherited",
        ("pid namespace",),
    ),
    Step(
        "memory dumps",
        "enclosure",
        _STRICT,
        "no memory is written to a core dump, whoever on this machine collects those",
        "while /proc can be written to; the setting is inherited, and theirs to read only",
    ),
    Step(
        "loopback",
        "enclosure",
        _STRICT,
        "127.0.0.1 and ::1 work, and lead nowhere else",
        "in a network namespace of the run's own, while we may still do that",
        ("network none",),
    ),
    Step(
        "host name",
        "enclosure",
        _STRICT,
        "the machine's name is not told",
        "in a uts namespace of the run's own: nobody else sees it change",
    ),
    Step(
        "cgroup namespace",
        "enclosure",
        _STRICT,
        "the run's own control group is the highest that it can name",
        "after its name outside was read, for the report",
    ),
    Step(
        "private root",
        "enclosure",
        _STRICT,
        "a read-only root of chosen parts, /proc read-only, a minimal /dev, memory of bounded"
        " size; the old root is let go",
        "all sources are opened before the first mount, without following links; every mount"
        " gets its restrictions before it can be seen; nothing is ever made on the host",
    ),
    Step(
        "own /proc",
        "enclosure",
        _WEAKER,
        "/proc shows the run's own processes, read-only",
        "from inside the pid namespace, over the host's: with that in sight, keepers could be"
        " starved by the files there",
        ("pid namespace",),
    ),
    Step(
        "control groups",
        "enclosure",
        _WEAKER,
        "control groups are read-only",
        "who owns the files could freeze the keepers",
        ("pid namespace",),
    ),
    Step(
        "out-of-memory rank in the fallback",
        "surrender",
        _ALL,
        "when memory is used up, the kernel kills runs before all others",
        "as root before the uid goes: then nobody but root can take it back",
        ("fallback",),
    ),
    Step(
        "limits",
        "surrender",
        _ALL,
        "processes, core dumps, descriptors, locked memory, queues",
        "first: what is lowered can only be raised again by the privileges that go next",
    ),
    Step(
        "scheduling",
        "surrender",
        _CONFINED,
        "the CPU is the run's when nobody else wants it (SCHED_IDLE); sleeps are up to 1 ms longer",
        "however many of its processes wake up however often, its keepers run before them",
    ),
    Step(
        "uid",
        "surrender",
        _ALL,
        "a uid, and a group of the same number, that nothing else on this machine has",
        "after the mounts, which need root; it takes root's rights to files and settings",
        ("own uid",),
    ),
    Step(
        "capabilities",
        "surrender",
        _ALL,
        "strict: none in any of the five sets; standard, as root: those that open files, with"
        " Landlock as the wall; basic, as root: those of root in a container",
        "after the uid, whose change needs two of them",
    ),
    Step(
        "no new privileges",
        "surrender",
        _ALL,
        "no program that is executed gives back what was taken: setuid bits do nothing",
        "what lets a process without privileges install the next two",
    ),
    Step(
        "Landlock",
        "surrender",
        _ALL,
        "writing only where that is meant, at standard reading too; no signal to the outside",
        "after the mounts, which it forbids; at standard it is the wall, at strict a second one"
        " for all but reading",
    ),
    Step(
        "seccomp",
        "surrender",
        _ALL,
        "calls that no agent needs, and those that could reach keepers, fail",
        "last: it forbids most of what was done before it",
    ),
)


def steps_of(level: Sandbox, facts: frozenset[Fact]) -> Iterator[Step]:
    """Yield the steps that are taken at a level."""
    for step in STEPS:
        if level in step.levels and facts.issuperset(step.when):
            yield step


def carry_out(
    stage: str,
    level: Sandbox,
    facts: frozenset[Fact],
    acts: Mapping[str, Callable[[], None]],
) -> None:
    """Take the steps of a stage. Raises CannotStartError, which names the step that failed."""
    for step in steps_of(level, facts):
        if step.stage == stage:
            try:
                acts[step.name]()
            except CannotStartError as error:
                error.step = step.name
                raise
            except OSError as error:
                refused = refused_step(step.name, level, error)
                refused.step = step.name
                raise refused from None


def main() -> int:
    """Print the steps of a level, or all."""
    levels = [Sandbox(word) for word in sys.argv[1:]] or list(Sandbox)
    chosen = [step for step in STEPS if any(level in step.levels for level in levels)]
    sys.stdout.write(msgspec.json.encode(chosen).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
