"""What is taken from an agent before its first instruction, in the order that works."""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from agentctl_child.keepers import layers
from agentctl_child.keepers.refusal import CannotStartError
from agentctl_child.sandbox import capabilities, landlock, prctl, rlimits, seccomp
from agentctl_protocol.vocabulary import Containment, Sandbox


@dataclass(frozen=True)
class Confinement:
    """What the warden has decided about the agent's process; it does not change over the fork.

    ``keepers`` and ``groups`` are those of `Seal`; ``process_limit`` counts tasks of the uid.
    """

    containment: Containment
    sandbox: Sandbox
    outside: layers.Surroundings
    host_uid: int | None = None
    subreaper: bool = False
    process_limit: int | None = None
    seal: "Seal | None" = None

    def apply(self) -> tuple[str, ...]:
        """Confine this process; return the layers that hold.  Raises CannotStartError, OSError."""
        # The limit counts for the new uid, and lowering it needs no privilege.
        if self.process_limit is not None:
            rlimits.limit_processes(self.process_limit)
        self._give_up_privileges()
        if self.containment is Containment.PID_NAMESPACE or self.sandbox is not Sandbox.NONE:
            prctl.forbid_new_privileges()
        domain = self.seal is not None and self.seal.close()
        return layers.read_back(self.outside, subreaper=self.subreaper, landlock=domain)

    def _give_up_privileges(self) -> None:
        keep: Iterable[int]
        if self.host_uid is not None:
            # The interpreter and the code may lie in a root's 0700 home.  This
            # capability opens them for reading, and gives no power over processes.
            keep = {capabilities.DAC_READ_SEARCH}
            if capabilities.may_limit():
                capabilities.limit_bounding(keep)
            capabilities.keep_over_setuid()
            os.setgroups([])
            os.setresgid(self.host_uid, self.host_uid, self.host_uid)
            os.setresuid(self.host_uid, self.host_uid, self.host_uid)
            capabilities.hold(keep, ambient=True)
            return
        if self.containment is Containment.SUBREAPER and self.sandbox is Sandbox.NONE:
            return
        keep = capabilities.ROOT_IN_A_RUN if self.outside.uid == 0 else ()
        if capabilities.may_limit():
            capabilities.limit_bounding(keep)
        capabilities.hold(keep)


@dataclass(frozen=True)
class Seal:
    """The fallback's wall between an agent and the keepers that it can see in /proc.

    ``program`` is the seccomp filter; ``warden`` is whom Landlock is tried out on.
    """

    program: bytes
    warden: int

    def close(self) -> bool:
        """Shut the agent in; return whether Landlock holds too.  Raises CannotStartError."""
        try:
            domain = landlock.abi() > 0
            if domain:
                landlock.shut_in()
            if landlock.has_signal_scope():
                self._prove_scope()
            seccomp.install(self.program)
        except OSError as error:
            raise CannotStartError(
                "sandbox",
                f"the agent cannot be kept from killing its keepers: {error.strerror}",
                hint="This kernel or container refuses Landlock or seccomp; "
                "--sandbox none runs the agent unsealed.",
            ) from None
        return domain

    def _prove_scope(self) -> None:
        """Landlock cannot be read back, so signal 0 is sent to the warden, before seccomp."""
        try:
            os.kill(self.warden, 0)
        except PermissionError:
            return
        raise CannotStartError("sandbox", "Landlock's signal scope is on but does not hold")


def seal_against(warden: int, spawner: int, supervisor: int) -> Seal:
    """The seal for a run with these keepers.  Raises CannotStartError where there is none."""
    if not seccomp.is_supported():
        raise CannotStartError(
            "sandbox",
            "the subreaper fallback cannot be sealed on this architecture",
            hint="--sandbox none runs the agent unsealed.",
        )
    groups: tuple[int, ...] = ()
    try:
        groups = (os.getpgid(supervisor), os.getpgid(spawner))
    except ProcessLookupError:  # dead: the death chain will say so in a moment
        pass
    return Seal(seccomp.keeper_filter((warden, spawner, supervisor), groups), warden)
