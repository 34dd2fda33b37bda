"""Find what a project's file asks for but may not have (docs/adr/0009).

The file lies where runs may write, so an agent could ask there for a weaker sandbox for the next
run.  Therefore the file may only make runs stricter than they would be without it.  The exception
is a project that the user's own file, which no run reaches, lists as trusted.  The functions are
pure except that they resolve links.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from agentctl_protocol.spec import DEFAULT_GRACE_S, DEFAULT_OUTPUT_BYTES, DEFAULT_TERM_GRACE_S
from agentctl_protocol.vocabulary import CONFINED, Network, Sandbox

FREE_GRACE_S: Final = 60.0
"""The longest grace period in seconds that any project may ask for.  Agents need time to save their
work, and ``kill`` does not wait for it."""

_OPENING: Final = frozenset({"PATH", "PYTHONPATH"})
"""Variables whose directories `policy.shared_view` shows to a run."""

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
    """The directories of the project's file, of the run's start, and of the user's home."""

    directory: str
    cwd: str
    home: str | None = None


class Wish(msgspec.Struct, frozen=True):
    """A setting that a project's file asks for but may not have: a key with one of its values."""

    key: str
    value: Any


def wishes(asked: Mapping[str, Any], others: Mapping[str, Any], its: Project) -> Iterator[Wish]:
    """Yield the settings in *asked*, those that the project's file decides, that weaken the run.

    *others*: the settings that would count without that file.
    """
    for key, value in asked.items():
        if key in ("deny", "approve", "calls-of"):
            continue  # each further entry makes the run stricter
        if key in ("ro", "rw", "unprotect", "env", "allow"):
            yield from (Wish(key, one) for one in value if _adds(key, one, others, its))
        elif _weakens(key, value, others, its):
            yield Wish(key, value)


def is_trusted(directory: str, trusted: Sequence[str]) -> bool:
    """Return whether *directory* itself is in *trusted*; a directory above it does not count."""
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
        case _:  # a new key that this function does not know
            return True


def _has_network(others: Mapping[str, Any]) -> bool:
    level = others.get("sandbox", Sandbox.STRICT)
    # The levels below standard cannot take the network away.
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
            # The first patterns restrict the run.  If there are some, each further one allows more.
            return bool(held) and one not in held
        case "env":
            # A value in the file is not the user's secret; a name alone passes on the user's value.
            name, equals, value = one.partition("=")
            if one in held:
                return False
            return not equals or (name in _OPENING and _shows(value, its))
        case _:
            return one not in held


def _shows(search_path: str, its: Project) -> bool:
    """Return whether *search_path* would show a run more directories than it sees without it."""
    return any(
        entry.startswith("/")
        and not any(_is_within(entry, seen) for seen in _SEEN_ANYWAY)
        and not _is_open_part(entry, its)
        for entry in search_path.split(os.pathsep)
    )


def _workspace(others: Mapping[str, Any], its: Project) -> Iterator[str]:
    """Yield the workspace that the run sees in any case; nothing if it gets a fresh workspace."""
    if "workspace" in others:
        yield others["workspace"]
    elif not _is_above(its.cwd, its.home):
        yield its.cwd


def _is_open_part(path: str, its: Project) -> bool:
    """Return whether *path* is part of the project and not in a hidden directory of it.

    A workspace in ``.git`` could change the hooks that are protected in a workspace around it.  A
    home directory is not a project, because it holds all of the user's files.
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
