"""What decides which code agentctl executes when it is next started: Python's search path.

Whoever can write to a directory there leaves a ``sitecustomize``, which Python executes before
anything of ours.  So can whoever makes one that is not there yet, or leads a link elsewhere.
"""

import os
import site
import sys
from collections.abc import Iterator
from importlib.machinery import FileFinder
from typing import Final
from zipimport import zipimporter

import msgspec

from agentctl_supervisor.policy.contents import beginning

_PTH_BYTES: Final = 1 << 20

PACKAGES: Final = (
    *("agentctl_protocol", "agentctl_child", "agentctl_supervisor", "msgspec", "psutil"),
    *("trio", "attr", "attrs", "idna", "outcome", "sniffio", "sortedcontainers"),
)
"""All that agentctl imports but for the standard library."""

_TRIED: Final = frozenset({"sitecustomize", "usercustomize", "org", "typing_extensions"})
"""Imported where they are there: by ``site``, by ``copy`` until Python 3.13, by ``attr``."""


class Searched(msgspec.Struct, frozen=True):
    """A place where modules are looked for.

    ``path``: absolute, links and all, there or not.  ``why``: what makes Python look there.
    ``hint``: what to do for a run that is to write there.  ``whole``: any file beneath it may
    be taken for a module's; else only what is in it by a module's name.
    """

    path: bytes
    why: str
    hint: str
    whole: bool = False


class ImportPath(msgspec.Struct, frozen=True):
    """The search path of the process that somebody started, and what it imported so far."""

    searched: tuple[Searched, ...] = ()
    imported: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Whether agentctl may import a module from a file or directory called *name*."""
        module, _, rest = name.partition(".")
        return (
            module in sys.stdlib_module_names
            or module in (*PACKAGES, *_TRIED, *self.imported)
            or name == "__pycache__"
            or rest == "pth"
        )


_UNSET: Final = "unset PYTHONPATH; --env PYTHONPATH=... is for the run alone"
_NOT_BOUND: Final = "python -P -m agentctl_supervisor, or agentctl, is not bound to it"
_APART: Final = "install agentctl in an environment of its own: pipx install, uv tool install"


def import_path(python_path: str, here: str) -> ImportPath:
    """That of this process.

    *python_path*: its ``PYTHONPATH``, used or not.  *here*: where agentctl is next started.
    """
    imported = frozenset(name.partition(".")[0] for name in sys.modules)
    return ImportPath(
        (*_by_variable(python_path, here), *_by_ourselves(), *_by_sites()),
        imported - sys.stdlib_module_names,
    )


def _by_variable(python_path: str, here: str) -> Iterator[Searched]:
    for entry in python_path.split(os.pathsep) if python_path else ():
        why = "PYTHONPATH" if entry else "an empty entry in PYTHONPATH"
        yield _searched(os.path.join(here, entry), why, _UNSET)
    if prefix := sys.pycache_prefix:
        hint = "unset PYTHONPYCACHEPREFIX, or have it elsewhere"
        yield _searched(os.path.join(here, prefix), "PYTHONPYCACHEPREFIX", hint, whole=True)


def _by_ourselves() -> Iterator[Searched]:
    for number, entry in enumerate(sys.path):
        is_the_programs = number == 0 and not sys.flags.safe_path
        if not os.path.isabs(entry) and _is_claimed(entry):
            continue
        try:
            # The empty one of ``python -c`` and of interpreters that are typed to: where we are.
            path = os.path.abspath(entry)
        except FileNotFoundError:
            continue
        if is_the_programs:
            yield _searched(path, "its program lies there", _NOT_BOUND)
        else:
            yield _searched(path, "it is installed there", _APART)


def _is_claimed(entry: str) -> bool:
    """Whether *entry* is no directory but a mark for an importer, as of a development install."""
    for hook in sys.path_hooks:
        try:
            finder = hook(entry)
        except ImportError:
            continue
        return not isinstance(finder, FileFinder | zipimporter)
    return False


def _by_sites() -> Iterator[Searched]:
    """What ``site`` adds to the path once it is there."""
    sites = site.getsitepackages()
    if site.ENABLE_USER_SITE:
        users = site.getusersitepackages()
        yield _searched(users, "the packages of a user", "PYTHONNOUSERSITE=1 does without")
        sites.append(users)
    for directory in sites:
        for name in _pth_files(directory):
            # As site does: what cannot be decoded names nothing that could be made.
            text = (beginning(os.path.join(directory, name), _PTH_BYTES) or b"").decode(
                "utf-8-sig", "surrogateescape"
            )
            for line in text.splitlines():
                if line.strip() and not line.startswith(("#", "import ", "import\t")):
                    yield _searched(os.path.join(directory, line.rstrip()), name, _APART)


def _pth_files(directory: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(directory) if name.endswith(".pth"))
    except OSError:
        return []


def _searched(path: str, why: str, hint: str, *, whole: bool = False) -> Searched:
    return Searched(os.fsencode(path), why, hint, whole)
