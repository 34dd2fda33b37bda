"""Makes the `Launch` for the spawner from a `RunSpec`.  Reads files, and writes none."""

import os
import site
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from agentctl_protocol.errors import LocalProtocolError
from agentctl_protocol.framing import MAX_FRAME, frame
from agentctl_protocol.messages import Start
from agentctl_protocol.os_names import display, to_text
from agentctl_protocol.spawning import Launch
from agentctl_protocol.spec import RunSpec, SpecError, split_target
from agentctl_protocol.values import pack_value
from agentctl_protocol.vocabulary import CONFINED, Containment, Network, Sandbox
from agentctl_supervisor.policy.decision import Ground, Policy, decide
from agentctl_supervisor.text.suggestions import closest

LEVEL_VARIABLE: Final = "AGENTCTL_SANDBOX"
"""The environment variable with the level of runs that name none."""
DEFAULT_LEVEL: Final = Sandbox.STRICT


def settled(spec: RunSpec, environ: Mapping[str, str]) -> RunSpec:
    """Return *spec*, checked, with a sandbox level, a network, absolute paths, and their origins.

    Raises:
        SpecError: *environ* names a level that does not exist, or the spec cannot be run as it
            is written.
    """
    spec.check_types()
    origins = dict(spec.origins)
    if spec.sandbox is not None:
        level = _word(spec.sandbox, Sandbox, "sandbox level")
    elif named := environ.get(LEVEL_VARIABLE):
        level = _word(named, Sandbox, "sandbox level", f"{LEVEL_VARIABLE}=")
        origins["sandbox"] = f"env {LEVEL_VARIABLE}"
    else:
        level = DEFAULT_LEVEL
        origins["sandbox"] = "default"
    if spec.net is not None:
        net = _word(spec.net, Network, "network")
    else:
        net = Network.NONE if level in CONFINED else Network.HOST
        origins["net"] = "default"
    given = msgspec.structs.replace(spec, sandbox=level, net=net, origins=origins)
    if given.ro or given.rw:
        # A program that looks at the run afterwards may have another working directory.
        here = working_directory(given)
        given = msgspec.structs.replace(
            given, ro=_absolute(given.ro, here), rw=_absolute(given.rw, here)
        )
    return given.checked()


def _absolute(paths: tuple[str, ...], here: str) -> tuple[str, ...]:
    return tuple(os.path.normpath(os.path.join(here, path)) for path in paths)


_W = TypeVar("_W", Sandbox, Network)


def _word(text: str, words: type[_W], what: str, prefix: str = "") -> _W:
    """Return the member of *words* for *text*, which a program may give as a plain string."""
    try:
        return words(text)
    except ValueError:
        close = closest(text, words)
        listed = " or ".join(words)
        raise SpecError(
            f"{prefix}{text[:40]}: no such {what}",
            f"did you mean {close}? There is {listed}" if close else listed,
        ) from None


def working_directory(spec: RunSpec) -> str:
    """Return the run's working directory as an absolute path.

    Raises:
        SpecError: our working directory was removed, and the spec names none.
    """
    try:
        return os.path.abspath(spec.cwd or os.getcwd())
    except FileNotFoundError:
        raise SpecError(
            "the current directory does not exist any more", "cd somewhere else"
        ) from None


def policy_of(
    spec: RunSpec,
    environ: Mapping[str, str],
    *,
    run_directory: str,
    own_uid: int | None = None,
) -> Policy:
    """Return the policy for the run of *spec*, which must come from `settled`.

    *run_directory* is where the run's files are kept.  For *own_uid* see `Ground`.

    Raises:
        SpecError: something that the spec asks for does not exist, or is too much.
    """
    return decide(spec, Ground(environ, working_directory(spec), run_directory, own_uid))


def launch_of(
    spec: RunSpec,
    run_id: str,
    policy: Policy,
    own_uid: int | None = None,
    exit_file: str = "",
) -> Launch:
    """Return what the warden of *run_id* is told, with the strongest containment.

    Its deadline is the run's time limit plus both grace periods.  *exit_file*: as in `Launch`.
    """
    deadline_s = None
    if spec.time_s is not None:
        deadline_s = spec.time_s + spec.grace_s + spec.term_grace_s
    return Launch(
        run=run_id,
        sandbox=policy.level,
        containment=Containment.PID_NAMESPACE,
        env={os.fsencode(name): os.fsencode(value) for name, value in policy.env.items()},
        cwd=os.fsencode(policy.cwd),
        argv=tuple(os.fsencode(argument) for argument in policy.argv),
        target=display(spec.target or ""),
        python=b"" if spec.python is None else os.fsencode(spec.python),
        deadline_s=deadline_s,
        host_uid=own_uid,
        sealed=policy.level is not Sandbox.NONE,
        view=policy.view.parts,
        network=policy.network,
        exit_file=os.fsencode(exit_file),
    )


def start_of(spec: RunSpec, run_id: str, policy: Policy) -> Start:
    """Return what the agent is told after its hello."""
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
        target=to_text(f"{where}:{function}"),
        input=pack_value(spec.input),
        paths=tuple(map(to_text, (first, *_python_path(spec, policy.env)))),
    )


def check_start(start: Start) -> None:
    """Check that *start* can be sent.

    Raises:
        SpecError: *start* does not fit into one message.
    """
    try:
        frame(msgspec.msgpack.encode(start))
    except LocalProtocolError:
        raise SpecError(
            f"the input is too long for one message of {MAX_FRAME:,} bytes",
            "pass the path of a file instead",
        ) from None


def _python_path(spec: RunSpec, env: Mapping[str, str]) -> list[str]:
    """Return the paths that ``python`` itself would add to ``sys.path``.

    The agent's interpreter does not add them, because it is isolated (``-I``).
    """
    paths = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    if spec.python is None and site.ENABLE_USER_SITE:
        user_site = site.getusersitepackages()
        if os.path.isdir(user_site):
            paths.append(user_site)
    return list(dict.fromkeys(paths))
