"""From a `RunSpec` to the `Launch` that the spawner is given.  Reads, never writes."""

import os
import site
from collections.abc import Mapping
from typing import Final

import msgspec

from agentctl_protocol.messages import Start
from agentctl_protocol.spawning import Launch
from agentctl_protocol.spec import RunSpec, SpecError, split_target
from agentctl_protocol.values import pack_value
from agentctl_protocol.vocabulary import Containment, Sandbox

LEVEL_VARIABLE: Final = "AGENTCTL_SANDBOX"
"""The level of runs that name none."""


def with_level(spec: RunSpec, environ: Mapping[str, str]) -> RunSpec:
    """*spec* with a sandbox level.

    Raises:
        SpecError: there is no level of the name that *environ* gives.
    """
    if spec.sandbox is not None:
        return spec
    named = environ.get(LEVEL_VARIABLE) or Sandbox.BASIC
    try:
        return msgspec.structs.replace(spec, sandbox=Sandbox(named))
    except ValueError:
        raise SpecError(
            f"{LEVEL_VARIABLE}={named[:40]}: no such sandbox level", " or ".join(Sandbox)
        ) from None


def working_directory(spec: RunSpec) -> str:
    """The run's working directory as an absolute path.

    Raises:
        SpecError: ours was removed, and the spec names none.
    """
    try:
        return os.path.abspath(spec.cwd or os.getcwd())
    except FileNotFoundError:
        raise SpecError(
            "the current directory does not exist any more", "cd somewhere else"
        ) from None


def launch_of(spec: RunSpec, run_id: str, environ: Mapping[str, str]) -> Launch:
    """What the warden of *run_id* is told, with the strongest containment.

    Times out at its own limit plus both graces.

    Raises:
        SpecError: an argument, a path or the environment is no text that Linux could take.
    """
    assert spec.sandbox is not None
    env = spec.env if spec.env is not None else environ
    deadline_s = None
    if spec.time_s is not None:
        deadline_s = spec.time_s + spec.grace_s + spec.term_grace_s
    try:
        return Launch(
            run=run_id,
            sandbox=spec.sandbox,
            containment=Containment.PID_NAMESPACE,
            env={os.fsencode(name): os.fsencode(value) for name, value in env.items()},
            cwd=os.fsencode(working_directory(spec)),
            argv=tuple(os.fsencode(argument) for argument in spec.argv or ()),
            target=spec.target or "",
            python=b"" if spec.python is None else os.fsencode(spec.python),
            deadline_s=deadline_s,
            sealed=spec.sandbox is not Sandbox.NONE,
        )
    except UnicodeEncodeError:  # whose text may be a secret of the environment
        raise SpecError("an argument, a path or a variable cannot be encoded") from None


def start_of(spec: RunSpec, run_id: str, environ: Mapping[str, str]) -> Start:
    """What the agent is told once it has said hello."""
    if spec.target is None:
        return Start(run=run_id)
    where, function = split_target(spec.target)
    cwd = working_directory(spec)
    if where.endswith(".py"):
        where = os.path.join(cwd, where)
        first = os.path.dirname(where)
    else:
        first = cwd
    return Start(
        run=run_id,
        target=f"{where}:{function}",
        input=pack_value(spec.input),
        paths=(first, *_python_path(spec, environ)),
    )


def _python_path(spec: RunSpec, environ: Mapping[str, str]) -> list[str]:
    """What ``python`` itself would add; the agent's interpreter, isolated (``-I``), does not."""
    env = spec.env if spec.env is not None else environ
    paths = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    if spec.python is None and site.ENABLE_USER_SITE:
        user_site = site.getusersitepackages()
        if os.path.isdir(user_site):
            paths.append(user_site)
    return list(dict.fromkeys(paths))
