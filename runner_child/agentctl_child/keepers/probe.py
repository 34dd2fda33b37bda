"""A probe for the containment that works on this machine, tried in a throwaway process.

Many kernels and containers allow the first step (clone, unshare) and refuse a later one (the id
map, the mount). The probe therefore takes all steps. As a program, ``python -m
agentctl_child.keepers.probe`` prints the findings as one line of JSON: for each containment the
reason why it does not work, or an empty string.
"""

import os
import sys
from typing import NoReturn

import msgspec

from agentctl_child.keepers.enclosure import (
    Enclosure,
    enclosure_for,
    facts_of,
    namespaces_of,
)
from agentctl_child.keepers.refusal import NO_NAMESPACE, CannotStartError, why_no_namespace
from agentctl_child.sandbox import clone, landlock, prctl, seccomp
from agentctl_protocol.spawning import Launch
from agentctl_protocol.vocabulary import Containment, Sandbox

_LONGEST = 4096
#: Represents all launches that ask for containment only.
_ANY = Launch(
    run="", sandbox=Sandbox.BASIC, containment=Containment.PID_NAMESPACE, env={}, cwd=b"/"
)


class Findings(msgspec.Struct, frozen=True):
    """The findings of the probe.

    ``pid_namespace``: the reason why runs get no pid namespace, or empty. ``sealed``: True if
    `Seal` works.
    """

    pid_namespace: str
    sealed: bool


def find_out() -> Findings:
    """Take all steps once; takes about 3 ms. Raises OSError if not even a fork is possible."""
    answer, question = os.pipe()
    facts = facts_of(_ANY, os.geteuid())
    namespaces = namespaces_of(Sandbox.BASIC, facts)
    # Before the clone: in a user namespace without a map, every uid is the overflow uid, 65534.
    enclosure: Enclosure | None = enclosure_for(_ANY, facts)
    refused = ""
    try:
        pid, pidfd = clone.fork(namespaces)
    except OSError as error:
        refused = why_no_namespace(error)
        enclosure = None
        pid, pidfd = clone.fork()
    if pid == 0:
        _try(question, enclosure)
    os.close(question)
    with open(answer, "rb") as file:
        data = file.read(_LONGEST)
    os.waitpid(pid, 0)
    os.close(pidfd)
    seen = msgspec.json.decode(data, type=Findings) if data else Findings("it died", False)
    return Findings(pid_namespace=refused or seen.pid_namespace, sealed=seen.sealed)


def _try(question: int, enclosure: Enclosure | None) -> NoReturn:
    refused, sealed = "it did not come to an end", False
    try:
        try:
            if enclosure is not None:
                enclosure.enter()
            refused = ""
        except CannotStartError as error:
            refused = str(error).removeprefix(NO_NAMESPACE)
        except OSError as error:
            refused = why_no_namespace(error)
        sealed = _can_seal()
    finally:
        os.write(question, msgspec.json.encode(Findings(refused, sealed)))
        os._exit(0)


def _can_seal() -> bool:
    if not seccomp.is_supported():
        return False
    try:
        prctl.forbid_new_privileges()
        if landlock.abi() > 0:
            landlock.shut_in()
        elif os.geteuid() != 0:  # root's runs have another uid; a user's run could write our memory
            return False
        seccomp.install(seccomp.keeper_filter([os.getppid()]))
    except OSError:
        return False
    return True


def main() -> int:
    """Print the findings."""
    findings = find_out()
    report = {
        Containment.PID_NAMESPACE.value: findings.pid_namespace,
        Containment.SUBREAPER.value: "",
        "sealed": findings.sealed,
    }
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
