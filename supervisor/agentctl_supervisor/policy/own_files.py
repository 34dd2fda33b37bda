"""Find agentctl's own files: the interpreter with its installed packages, and agentctl's packages.

Every run can read them, because keepers and the SDK need them.  No run can change them, wherever
they lie: a process that changes them controls the next supervisor.
"""

import itertools
import os
import site
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from agentctl_protocol.spec import SpecError
from agentctl_supervisor.policy.installations import prefix_parts
from agentctl_supervisor.policy.links import cut_short
from agentctl_supervisor.policy.unsuitable_directories import Places
from agentctl_supervisor.policy.untrusted_files import (
    UnreadableError,
    entries,
    is_there,
    status,
    whole,
)
from agentctl_supervisor.processes.isolated_python import PACKAGES, locations

_OF_THE_SYSTEM: Final = ("/usr/lib", "/nix/store/")
_PTH_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class OwnFile:
    """A path of agentctl's own.

    ``kept``: True if no ``--rw`` makes it writable.  If False, the path is only shown for agents.
    """

    path: str
    why: str
    kept: bool = True


def own_files(places: Places) -> tuple[OwnFile, ...]:
    """Return the own files that runs see.  Links in the paths are not resolved."""
    found: dict[str, OwnFile] = {}
    for file in (*_interpreter(places), *_packages(), *_of_agents(places)):
        if is_there(file.path, follow=True) if file.kept else os.path.exists(file.path):
            found.setdefault(os.path.normpath(file.path), file)
    return tuple(found.values())


def _interpreter(places: Places) -> Iterator[OwnFile]:
    prefixes = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    for prefix in dict.fromkeys(prefixes):
        for path in prefix_parts(prefix, places):
            yield OwnFile(path, "the interpreter")


def _packages() -> Iterator[OwnFile]:
    for path in locations():
        yield OwnFile(path, "agentctl's own files")
        for link in _beneath(path).links:
            yield OwnFile(link, "agentctl's own files")


def second_name() -> str:
    """Return an own file with a second name by which a run might change it, or an empty text.

    ``uv`` makes hard links into its cache, ``conda`` into its packages.  The place of the other
    name cannot be found, and writing to that name changes our file.
    """
    if linked := _linked_package_file():
        return linked
    for path in (os.path.join(sys.prefix, "bin/agentctl"), os.__file__):
        try:
            found = os.stat(path)
        except (FileNotFoundError, PermissionError):  # no permission: the file is not the caller's
            continue
        if _has_second_name(found, path):
            return path
    return ""


@lru_cache(maxsize=1)
def _linked_package_file() -> str:
    """Return the first file of our packages with a second name.  Cached: every run start asks."""
    return next(filter(None, (_beneath(path).hard_linked for path in locations())), "")


def refuse_second_names() -> None:
    """Refuse to start a run if one of our files has a `second_name`.

    Raises:
        SpecError: a file has one.  The error names it, and says how to install copies.
    """
    if linked := second_name():
        raise SpecError(
            f"{cut_short(linked)}, a file of agentctl's, has a second name (a hard link into a"
            " package cache), by which a run could change it",
            "uv tool install --reinstall --link-mode copy agentctl-supervisor"
            " (UV_LINK_MODE=copy for uv run, uvx); conda: set always_copy; or use pip, pipx",
        )


class _Beneath(NamedTuple):
    """The symbolic links in a directory tree, and one of its files with a second name."""

    links: tuple[str, ...]
    hard_linked: str


@lru_cache(maxsize=len(PACKAGES))
def _beneath(directory: str) -> _Beneath:
    """Return the links beneath *directory*.  Cached: a look at all packages takes 1 ms."""
    links, hard_linked, left = list[str](), "", [directory]
    while left:
        inside = left.pop()
        for entry in entries(inside):
            path = os.path.join(inside, entry.name)
            if entry.is_link:
                links.append(path)
            elif entry.is_directory:
                left.append(path)
            elif not hard_linked and (found := status(path)) and _has_second_name(found, path):
                hard_linked = path
    return _Beneath(tuple(links), hard_linked)


def _has_second_name(found: os.stat_result, path: str) -> bool:
    # A file of another user cannot be written by its other name either.  OSTree and Nix make hard
    # links of all system files, but no run can write to the system's directories.
    return (
        found.st_nlink > 1 and found.st_uid == os.geteuid() and not path.startswith(_OF_THE_SYSTEM)
    )


def _of_agents(places: Places) -> Iterator[OwnFile]:
    """Yield the other paths that ``site`` finds for agents that run in our interpreter."""
    sites = site.getsitepackages()
    if site.ENABLE_USER_SITE:
        sites.append(site.getusersitepackages())
    for path in (*sites, *(path for directory in sites for path in _added_in(directory))):
        if os.path.exists(path) and not places.is_broad(os.path.realpath(path)):
            yield OwnFile(path, "Python's search path", kept=False)


def _added_in(directory: str) -> Iterator[str]:
    """Yield the paths in the ``.pth`` files of *directory*; code in them runs only in agents."""
    try:
        names = sorted(entry.name for entry in entries(directory) if entry.name.endswith(".pth"))
        texts = [whole(os.path.join(directory, name), _PTH_BYTES) or b"" for name in names]
    except UnreadableError:
        return
    lines = (text.decode("utf-8-sig", "surrogateescape").splitlines() for text in texts)
    for line in itertools.chain.from_iterable(lines):
        if line.strip() and "\0" not in line and not line.startswith(("#", "import ", "import\t")):
            yield os.path.normpath(os.path.join(directory, line.rstrip()))
