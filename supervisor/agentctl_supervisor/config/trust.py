"""What a project's file may not ask for by itself (docs/adr/0009).

It lies where runs may write: an agent could ask there for a weaker sandbox for the next
run.  So it may only make runs stricter than they would be without it, unless the user's
own file, which no run reaches, lists the project as trusted.  Pure, but for links.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from agentctl_protocol.spec import DEFAULT_GRACE_S, DEFAULT_OUTPUT_BYTES, DEFAULT_TERM_GRACE_S
from agentctl_protocol.vocabulary import CONFINED, Network, Sandbox

FREE_GRACE_S: Final = 60.0
"""A grace that any project may ask for: agents have work to save, and ``kill`` does not wait."""

_OPENING: Final = frozenset({"PATH", "PYTHONPATH"})
"""Variables whose directories a run is shown, as `policy.shared_view` does."""

_SEEN_ANYWAY: Final = ("/usr", "/bin", "/sbin", "/opt")

_LEVELS: Final = tuple(Sandbox)
_DEFAULTS: Final[Mapping[str, Any]] = {
    "sandbox": Sandbox.STRICT,
    "time": None,
    "output": DEFAULT_OUTPUT_BYTES,
    "grace": DEFAULT_GRACE_S,
    "term-grace": DEFAULT_TERM_GRACE_S,
}


class Project(msgspec.Struct, frozen=True):
    """Where a project's file lies; where the run starts; whose home directory is where."""

    directory: str
    cwd: str
    home: str | None = None


class Wish(msgspec.Struct, frozen=True):
    """What a project's file asks for and may not have: a key with one value of it."""

    key: str
    value: Any


def wishes(asked: Mapping[str, Any], others: Mapping[str, Any], its: Project) -> Iterator[Wish]:
    """Whatever of *asked*, which is what the project's file decides, weakens the run.

    *others*: what holds without that file.
    """
    for key, value in asked.items():
        if key in ("deny", "approve", "calls-of"):
            continue  # each one more makes it stricter
        if key in ("ro", "rw", "unprotect", "env", "allow"):
            yield from (Wish(key, one) for one in value if _adds(key, one, others, its))
        elif _weakens(key, value, others, its):
            yield Wish(key, value)


def is_trusted(directory: str, trusted: Sequence[str]) -> bool:
    """Whether the project in *directory* is one of *trusted*: itself, and not one above it."""
    return os.path.realpath(directory) in {os.path.realpath(path) for path in trusted}


def _weakens(key: str, value: Any, others: Mapping[str, Any], its: Project) -> bool:
    held = others.get(key, _DEFAULTS.get(key))
    match key:
        case "sandbox":
            return _LEVELS.index(value) > _LEVELS.index(held)
        case "net":
            return value is Network.HOST and not _has_network(others)
        case "workspace":
            return value != held and not _is_open_part(value, its)
        case "grace" | "term-grace":
            return bool(value > max(held, FREE_GRACE_S))
        case "time" | "output" | "calls" | "tokens":
            return held is not None and (value is None or value > held)
        case "stop-when":
            return held is not None and value != held
        case _:  # a key that nobody has thought about here
            return True


def _has_network(others: Mapping[str, Any]) -> bool:
    level = others.get("sandbox", Sandbox.STRICT)
    # Below standard there is nothing that could take the network away.
    default = Network.NONE if level in CONFINED else Network.HOST
    return bool(others.get("net", default) is Network.HOST)


def _adds(key: str, one: str, others: Mapping[str, Any], its: Project) -> bool:
    held = others.get(key, ())
    match key:
        case "ro":
            seen = (*held, *others.get("rw", ()), *_workspace(others, its))
            return not any(_is_within(one, path) for path in seen) and not _is_open_part(one, its)
        case "rw":
            return not any(_is_within(one, path) for path in held)
        case "allow":
            # The first ones are a restriction; where there are some, each one more is a gap.
            return bool(held) and one not in held
        case "env":
            # A value that stands in the file is no secret of ours; a name passes ours on.
            name, equals, value = one.partition("=")
            if one in held:
                return False
            return not equals or (name in _OPENING and _shows(value, its))
        case _:
            return one not in held


def _shows(search_path: str, its: Project) -> bool:
    """Whether a run that looks for programs or modules there is shown more than it would be."""
    return any(
        entry.startswith("/")
        and not any(_is_within(entry, seen) for seen in _SEEN_ANYWAY)
        and not _is_open_part(entry, its)
        for entry in search_path.split(os.pathsep)
    )


def _workspace(others: Mapping[str, Any], its: Project) -> Iterator[str]:
    """What the run sees in any case; nothing where it gets a fresh workspace."""
    if "workspace" in others:
        yield others["workspace"]
    elif not _is_above(its.cwd, its.home):
        yield its.cwd


def _is_open_part(path: str, its: Project) -> bool:
    """Whether *path* is of the project itself, and in no hidden directory of it.

    In ``.git`` a workspace would have the hooks that are protected in a workspace around it.
    A home directory is no project: what lies in there is everything.
    """
    if _is_above(its.directory, its.home) or not _is_within(path, its.directory):
        return False
    inside = os.path.relpath(os.path.realpath(path), os.path.realpath(its.directory))
    return inside == "." or not any(part.startswith(".") for part in inside.split("/"))


def _is_above(directory: str, home: str | None) -> bool:
    return directory == "/" or (home is not None and _is_within(home, directory))


def _is_within(path: str, directory: str) -> bool:
    path, directory = os.path.realpath(path), os.path.realpath(directory)
    return path == directory or path.startswith(directory.rstrip("/") + "/")
