"""Tries all setup steps of the sandbox once, without a run.

`agentctl_child.keepers.chain_probe` takes the steps.  They use the policy of a run in the current
directory, so that the file system of this directory is tested, too.
"""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Final

import msgspec

from agentctl_protocol.spawning import Launch
from agentctl_protocol.spec import RunSpec, SpecError
from agentctl_protocol.vocabulary import Containment, Sandbox
from agentctl_supervisor.errors import AgentctlError
from agentctl_supervisor.policy import fresh_directories
from agentctl_supervisor.processes import isolated_python
from agentctl_supervisor.processes.own_uids import OwnUids
from agentctl_supervisor.run.launch import launch_of, policy_of, settled

_WITHIN_S: Final = 20.0


class Chain(msgspec.Struct, frozen=True):
    """The results of the setup steps of one sandbox level.

    ``steps``: in order, the name of each step and why it failed, or empty.  Steps after a failed
    one were not taken.  ``layers``: the sandbox layers that the kernel confirmed in the end.
    ``hint``: the hint that a run would get.  ``trouble``: why nothing could be tried, or empty.
    """

    steps: dict[str, str] = {}
    layers: tuple[str, ...] = ()
    hint: str = ""
    trouble: str = ""

    @property
    def failed(self) -> tuple[str, str]:
        """The step that failed, and why; two empty strings if no step failed."""
        return next(((name, why) for name, why in self.steps.items() if why), ("", ""))

    @property
    def works(self) -> bool:
        """True if a run at this level can start on this machine."""
        return bool(self.steps) and not self.trouble and not self.failed[0]


def find_out(environ: Mapping[str, str], *, pid_namespace: bool) -> dict[str, Chain]:
    """Return the chains of strict and standard, in the containment that runs get here."""
    containment = Containment.PID_NAMESPACE if pid_namespace else Containment.SUBREAPER
    # Strict needs namespaces.  Without them, its probe says which one is missing.
    asked = {Sandbox.STRICT: Containment.PID_NAMESPACE, Sandbox.STANDARD: containment}
    found: dict[str, Chain] = {}
    with tempfile.TemporaryDirectory(prefix="agentctl-doctor-", ignore_cleanup_errors=True) as own:
        launches = []
        for level, held in asked.items():
            try:
                launches.append(_launch(level, held, environ, own))
            except (AgentctlError, SpecError, OSError) as error:
                found[level] = Chain(trouble=str(error))
        if launches:
            found |= _probe(launches)
    return found


def _launch(
    level: Sandbox, containment: Containment, environ: Mapping[str, str], own: str
) -> Launch:
    directory = os.path.join(own, level)
    os.mkdir(directory, 0o700)
    uid = OwnUids(os.getpid()).take() if os.geteuid() == 0 else None
    spec = RunSpec(argv=["/bin/true"], sandbox=level)
    try:
        spec = settled(spec, environ)
        policy = policy_of(spec, environ, run_directory=directory, own_uid=uid)
    except SpecError:
        # A run cannot use this directory; `agentctl run` reports why.  Try / instead.
        spec = msgspec.structs.replace(spec, cwd="/")
        policy = policy_of(spec, environ, run_directory=directory, own_uid=uid)
    fresh_directories.make(policy, uid)
    launch = launch_of(spec, "r-doctor", policy, uid)
    return msgspec.structs.replace(launch, containment=containment)


def _probe(launches: list[Launch]) -> dict[str, Chain]:
    command = isolated_python.command("agentctl_child.keepers.chain_probe")
    try:
        done = subprocess.run(
            command,
            input=msgspec.msgpack.encode(launches),
            capture_output=True,
            cwd="/",
            timeout=_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _trouble(launches, f"no answer in {_WITHIN_S:g} s")
    except OSError as error:
        return _trouble(launches, error.strerror or "the probe cannot be started")
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(done.stdout, type=dict[str, Chain])
    lines = done.stderr.decode("utf-8", "replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return _trouble(launches, last[:200] or f"exit code {done.returncode}")


def _trouble(launches: list[Launch], text: str) -> dict[str, Chain]:
    return {launch.sandbox.value: Chain(trouble=text) for launch in launches}
