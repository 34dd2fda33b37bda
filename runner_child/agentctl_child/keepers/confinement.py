"""The restrictions that an agent gets before its first instruction, in the order that works."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agentctl_child.keepers import layers, reachable, steps
from agentctl_child.keepers.refusal import CannotStartError, refused_layers
from agentctl_child.keepers.steps import Fact
from agentctl_child.sandbox import (
    capabilities,
    idmap,
    landlock,
    oom_score,
    prctl,
    rlimits,
    scheduling,
    seccomp,
    syscalls,
)
from agentctl_protocol.spawning import Part
from agentctl_protocol.vocabulary import CONFINED, Containment, Network, Sandbox


@dataclass(frozen=True)
class Confinement:
    """The warden's decisions about the agent's process; they do not change over the fork.

    ``process_limit`` counts the tasks of the uid. ``soft_descriptors``: as in `rlimits`.
    """

    containment: Containment
    sandbox: Sandbox
    outside: layers.Surroundings
    host_uid: int | None = None
    subreaper: bool = False
    process_limit: int | None = None
    seal: "Seal | None" = None
    view: tuple[Part, ...] = ()
    network: Network = Network.HOST
    facts: frozenset[Fact] = frozenset()
    soft_descriptors: int | None = None

    def apply(self, cgroup: bytes | None = None) -> tuple[str, ...]:
        """Confine this process; return the layers that hold. Raises CannotStartError, OSError.

        ``cgroup``: as in `layers.Tried`.
        """
        surrender = _Surrender(self)
        surrender.carry_out()
        found = layers.read_back(
            self.outside,
            layers.Tried(
                cgroup=cgroup,
                subreaper=self.subreaper,
                landlock=surrender.domain,
                landlock_words=surrender.words,
                filters=tuple(surrender.filters),
            ),
        )
        missing = [
            layer for layer in layers.promised(self.sandbox, self.facts) if layer not in found
        ]
        if missing:
            raise refused_layers(self.sandbox, missing)
        return found


class _Surrender:
    """The acts of the last stage, and the facts that are known about them."""

    def __init__(self, confinement: Confinement) -> None:
        self.plan = confinement
        self.confined = confinement.sandbox in CONFINED
        self.domain = False
        self.words: tuple[str, ...] = ()
        self.filters: list[str] = []

    def carry_out(self) -> None:
        acts: dict[str, Callable[[], None]] = {
            "out-of-memory rank in the fallback": self._out_of_memory_rank,
            "limits": self._limits,
            "scheduling": scheduling.coarsen_timers,
            "uid": self._uid,
            "capabilities": self._capabilities,
            "no new privileges": self._no_new_privileges,
            "Landlock": self._landlock,
            "seccomp": self._seccomp,
        }
        steps.carry_out("surrender", self.plan.sandbox, self.plan.facts, acts)

    def _out_of_memory_rank(self) -> None:
        with prctl.owning_proc_files():
            oom_score.stand_first()

    def _limits(self) -> None:
        if self.confined:
            rlimits.bound_everything()
        if self.plan.sandbox is not Sandbox.NONE:
            swept = self.plan.containment is Containment.SUBREAPER
            rlimits.bound_descriptors(
                self.plan.soft_descriptors,
                processes=rlimits.PROCESSES_PER_RUN if swept else None,
            )
        if self.plan.process_limit is not None:
            # Before the uid changes: the limit counts for the new uid, and needs no privilege.
            rlimits.limit_processes(self.plan.process_limit)

    def _uid(self) -> None:
        """Limit the bounding set, then change the uid. No other process is affected.

        The bounding set comes first, because changing it needs a capability.
        """
        keep = self._kept()
        uid = self.plan.host_uid
        assert uid is not None
        if capabilities.may_limit():
            capabilities.limit_bounding(keep)
        if keep:
            capabilities.keep_over_setuid()
        syscalls.call("setgroups", os.setgroups, ())
        syscalls.call("setresgid", os.setresgid, uid, uid, uid)
        syscalls.call("setresuid", os.setresuid, uid, uid, uid)

    def _capabilities(self) -> None:
        plan = self.plan
        if plan.host_uid is None:
            if plan.containment is Containment.SUBREAPER and plan.sandbox is Sandbox.NONE:
                return
            if capabilities.may_limit():
                capabilities.limit_bounding(self._kept())
        capabilities.hold(self._kept(), ambient=plan.host_uid is not None)

    def _kept(self) -> frozenset[int]:
        plan = self.plan
        if plan.sandbox is Sandbox.STRICT:
            return frozenset()
        if plan.host_uid is None:
            return capabilities.ROOT_IN_A_RUN if plan.outside.uid == 0 else frozenset()
        if plan.sandbox is Sandbox.STANDARD:
            # The agent must work in a workspace that belongs to the caller. These capabilities
            # open any file and give no power over processes. Landlock decides which files can be
            # reached.
            return frozenset({capabilities.DAC_OVERRIDE, capabilities.DAC_READ_SEARCH})
        # The interpreter and the code may lie in root's home directory of mode 0700.
        return frozenset({capabilities.DAC_READ_SEARCH})

    def _no_new_privileges(self) -> None:
        plan = self.plan
        if plan.containment is Containment.PID_NAMESPACE or plan.sandbox is not Sandbox.NONE:
            prctl.forbid_new_privileges()

    def _landlock(self) -> None:
        plan = self.plan
        if self.confined:
            if landlock.abi() == 0:
                raise CannotStartError(
                    "sandbox",
                    "this kernel has no Landlock",
                    hint="It needs Linux 5.13 with landlock among the kernel's lsm=; "
                    "--sandbox basic names the level that does without.",
                )
            self.words = reachable.restrict(plan.sandbox, plan.view, plan.network)
            self.domain = True
        elif plan.seal is not None and landlock.abi() > 0:
            with plan.seal.explained():
                landlock.shut_in()
            self.domain = True
        if plan.seal is not None:
            plan.seal.prove_scope()

    def _seccomp(self) -> None:
        plan = self.plan
        if plan.seal is not None:
            with plan.seal.explained():
                seccomp.install(plan.seal.program)
            self.filters.append(layers.SECCOMP)
        if self.confined:
            seccomp.install(reachable.surface(plan.sandbox, plan.network))
            self.filters.append(layers.SURFACE)


@dataclass(frozen=True)
class Seal:
    """The fallback's barrier between an agent and the keepers that it can see in /proc.

    ``program`` is the seccomp filter. ``warden`` is the process on which Landlock is tested.
    """

    program: bytes
    warden: int

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Turn an OSError of the seal into an explanation. Raises CannotStartError."""
        try:
            yield
        except OSError as error:
            raise CannotStartError(
                "sandbox",
                f"the agent cannot be kept from killing its keepers: {error.strerror}",
                hint="This kernel or container refuses Landlock or seccomp; "
                "--sandbox none runs the agent unsealed.",
            ) from None

    def prove_scope(self) -> None:
        """Check that Landlock keeps the agent from the warden, before seccomp forbids the check.

        Raises CannotStartError if Landlock does not do so although this kernel's version should.
        """
        try:
            landlock.prove(outsider=self.warden)
        except landlock.NotEnforcedError:
            raise CannotStartError(
                "sandbox", "Landlock's signal scope is on but does not hold"
            ) from None


def prepare() -> None:
    """Compute, once for many runs, the parts that do not depend on the run; takes 2 ms.

    Every process that is forked afterwards shares the result.
    """
    if seccomp.is_supported():
        for level in CONFINED:
            for network in Network:
                reachable.surface(level, network)
    for name in ("uid_map", "gid_map"):
        idmap.present(name)


def seal_against(warden: int, spawner: int, supervisor: int) -> Seal:
    """Return the seal for a run with these keepers. Raises CannotStartError if none is possible."""
    if not seccomp.is_supported():
        raise CannotStartError(
            "sandbox",
            "the subreaper fallback cannot be sealed on this architecture",
            hint="--sandbox none runs the agent unsealed.",
        )
    groups: tuple[int, ...] = ()
    try:
        groups = (os.getpgid(supervisor), os.getpgid(spawner))
    except ProcessLookupError:  # dead: the death chain will soon report it
        pass
    return Seal(seccomp.keeper_filter((warden, spawner, supervisor), groups), warden)
