"""Files that are ours: the interpreter with what is installed in it, and agentctl's packages.

Every run can read them, since keepers and SDK are made of them, and none can change them, wherever
they lie: whoever changes them is the next supervisor.
"""

import os
import site
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec

from agentctl_supervisor.policy.contents import entries, is_there
from agentctl_supervisor.policy.import_path import PACKAGES, search_path
from agentctl_supervisor.policy.installations import prefix_parts
from agentctl_supervisor.policy.places import Places


@dataclass(frozen=True)
class OwnFile:
    """A path that is ours.  ``kept``: no ``--rw`` opens it; else it is only Python's way there."""

    path: str
    why: str
    kept: bool = True


def own_files(places: Places, python_path: str) -> tuple[OwnFile, ...]:
    """What runs see of ours; paths as they are written, links and all."""
    found: dict[str, OwnFile] = {}
    for file in (*_interpreter(places), *_packages(), *_search_path(places, python_path)):
        if is_there(file.path, follow=True) if file.kept else os.path.exists(file.path):
            found.setdefault(os.path.normpath(file.path), file)
    return tuple(found.values())


def _interpreter(places: Places) -> Iterator[OwnFile]:
    prefixes = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    for prefix in dict.fromkeys(prefixes):
        for path in prefix_parts(prefix, places):
            yield OwnFile(path, "the interpreter")


def _packages() -> Iterator[OwnFile]:
    for name in PACKAGES:
        # Of a package without a dot, nothing is imported for this.
        spec = find_spec(name)
        for path in (spec.submodule_search_locations or ()) if spec else ():
            yield OwnFile(path, "agentctl's own files")
            for link in _links_beneath(path):
                yield OwnFile(link, "agentctl's own files")


@lru_cache(maxsize=len(PACKAGES))
def _links_beneath(directory: str) -> tuple[str, ...]:
    """As a farm of links has them; looked for once, since it takes 1 ms for all packages."""
    found: list[str] = []
    left = [directory]
    while left:
        inside = left.pop()
        for entry in entries(inside):
            if entry.is_link or entry.is_directory:
                (found if entry.is_link else left).append(os.path.join(inside, entry.name))
    return tuple(found)


def _search_path(places: Places, python_path: str) -> Iterator[OwnFile]:
    """What is installed elsewhere: what ``.pth`` files name, and the user's own packages."""
    # The spawner is isolated (-I): it has neither the script's directory nor PYTHONPATH.
    ours = [entry for entry, is_the_programs in search_path() if not is_the_programs]
    not_its = {os.path.abspath(path) for path in python_path.split(os.pathsep) if path}
    if site.ENABLE_USER_SITE:
        ours.append(site.getusersitepackages())
    for path in ours:
        if not path.startswith("/") or path in not_its or not os.path.exists(path):
            continue
        if not places.is_broad(os.path.realpath(path)):
            yield OwnFile(path, "Python's search path", kept=False)
