"""What decides which code agentctl executes when it is next started: Python's search path.

Whoever can write to a directory there leaves a ``sitecustomize``, which Python executes before
anything of ours.  So can whoever makes one that is not there yet, or leads a link elsewhere.

It is found out in the process that a person started: another one, isolated (``-I``), has less.
"""

import contextlib
import errno
import os
import re
import site
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.machinery import FileFinder, ModuleSpec
from typing import Any, Final, TypeVar
from zipimport import zipimporter

import msgspec

from agentctl_supervisor.policy.contents import UnreadableError, entries, whole

_T = TypeVar("_T")
_PTH_BYTES: Final = 1 << 20
_IMPORTS: Final = re.compile(r"\b(?:import|from)\s+(\w+)")

PACKAGES: Final = (
    *("agentctl_protocol", "agentctl_child", "agentctl_supervisor", "msgspec", "psutil"),
    *("trio", "attr", "attrs", "idna", "outcome", "sniffio", "sortedcontainers"),
)
"""All that agentctl imports but for the standard library."""

_TRIED: Final = frozenset({"sitecustomize", "usercustomize", "org", "typing_extensions"})
"""Imported where they are there: by ``site``, by ``copy`` until Python 3.13, by ``attr``."""

_NAMES: Final = frozenset(PACKAGES) | _TRIED


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
    """What one process imports, and where from.

    ``searched``: where modules are looked for, or were found.
    ``imported``: what it has imported so far, or will, by the first parts of the names.
    ``started``: the files that it was started by, absolute, links and all.
    ``configured``: what Python reads before all else, there or not.
    ``anywhere``: set where the next one imports from wherever it is started.
    """

    searched: tuple[Searched, ...] = ()
    imported: frozenset[str] = frozenset()
    started: tuple[bytes, ...] = ()
    configured: tuple[bytes, ...] = ()
    anywhere: Searched | None = None

    def has(self, name: str) -> bool:
        """Whether agentctl may import a module from a file or directory called *name*."""
        module, _, rest = name.partition(".")
        return (
            module in sys.stdlib_module_names
            or module in _NAMES
            or module in self.imported
            or name == "__pycache__"
            or rest == "pth"
        )


_UNSET: Final = "unset PYTHONPATH; --env PYTHONPATH=... is for the run alone"
_ABSOLUTE: Final = (
    "unset PYTHONPATH, or make its entries absolute; --env PYTHONPATH=... is for the run alone"
)
_NOT_BOUND: Final = "python -P -m agentctl_supervisor, or agentctl, is not bound to it"
_SAFE_PATH: Final = "python -P does not import from there; or name a directory of the run's own"
_APART: Final = (
    "install agentctl in an environment of its own: pipx install, uv tool install --link-mode copy"
)
_NO_USER_SITE: Final = "PYTHONNOUSERSITE=1 does without"


def import_path(environ: Mapping[str, str], here: str) -> ImportPath:
    """That of this process.

    *environ*: its environment, used or not.  *here*: where agentctl is next started.

    Raises:
        UnreadableError: what decides about it cannot be known.
    """
    users = _user_site(here)
    sites = (*(os.path.join(here, at) for at in site.getsitepackages()), *users)
    lines = [line for directory in sites for line in _pth_lines(directory)]
    searched = (
        *_by_variables(environ, here),
        *(Searched(os.fsencode(at), name, _APART) for name, _, paths in lines for at in paths),
        *(Searched(os.fsencode(at), "the packages of a user", _NO_USER_SITE) for at in users),
        *_by_ourselves(),
    )
    return ImportPath(
        searched=(*searched, *_found_elsewhere(searched), *_linked()),
        imported=frozenset((*_imported(), *_warned_by(), *(n for _, ns, _ in lines for n in ns))),
        started=tuple(map(os.fsencode, _started())),
        configured=tuple(map(os.fsencode, _configured())),
        anywhere=_anywhere(environ),
    )


def _by_variables(environ: Mapping[str, str], here: str) -> Iterator[Searched]:
    if path := environ.get("PYTHONPATH", ""):
        for entry in path.split(os.pathsep):
            for at in _both_ways(os.path.join(here, entry)):
                yield Searched(os.fsencode(at), "PYTHONPATH", _UNSET)
    if prefix := sys.pycache_prefix:
        at = os.path.join(here, prefix)
        hint = "unset PYTHONPYCACHEPREFIX, or have it elsewhere"
        yield Searched(os.fsencode(at), "PYTHONPYCACHEPREFIX", hint, whole=True)


def _both_ways(path: str) -> tuple[str, ...]:
    """*path* as the kernel reads it, and as Python does, to which ``link/..`` is nothing."""
    return tuple(dict.fromkeys((path, os.path.abspath(path))))


def _anywhere(environ: Mapping[str, str]) -> Searched | None:
    path = environ.get("PYTHONPATH", "")
    for entry in path.split(os.pathsep) if path else ():
        if not os.path.isabs(entry):
            what = f"the entry {entry[:40]!r}" if entry else "an empty entry"
            return Searched(b"", f"PYTHONPATH has {what}", _ABSOLUTE)
    users = ("PYTHONUSERBASE",) if site.ENABLE_USER_SITE else ()
    for variable in ("PYTHONPYCACHEPREFIX", *users):
        value = environ.get(variable, "")
        if value and not os.path.isabs(value):
            return Searched(b"", f"{variable} is not absolute", f"make {variable} absolute")
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if not sys.flags.safe_path and main is not None and main.name.startswith("agentctl_"):
        return Searched(b"", "it was started by python -m, without -P", _NOT_BOUND)
    return None


def search_path() -> list[tuple[str, bool]]:
    """The entries of ``sys.path`` that Python heeds, and whether each is for the program only."""
    entries: list[Any] = sys.path
    return [
        (entry, number == 0 and not sys.flags.safe_path)
        for number, entry in enumerate(entries)
        if isinstance(entry, str)
    ]


def _by_ourselves() -> Iterator[Searched]:
    for entry, is_the_programs in search_path():
        if not os.path.isabs(entry) and _is_claimed(entry):
            continue
        try:
            # The empty one of ``python -c`` and of interpreters that are typed to: where we are.
            path = os.fsencode(os.path.abspath(entry))
        except FileNotFoundError:
            continue
        if is_the_programs:
            yield Searched(path, "the program that runs it lies there", _SAFE_PATH)
        else:
            yield Searched(path, "it is on its search path", _APART)


def _is_claimed(entry: str) -> bool:
    """Whether *entry* is no directory but a mark for an importer, as of a development install."""
    for hook in sys.path_hooks:
        try:
            finder = hook(entry)
        except ImportError:
            continue
        return not isinstance(finder, FileFinder | zipimporter)
    return False


def _user_site(here: str) -> list[str]:
    """Where a user's own packages are, there or not; nothing where those are not heeded."""
    return [os.path.join(here, site.getusersitepackages())] if site.ENABLE_USER_SITE else []


def _pth_lines(directory: str) -> Iterator[tuple[str, list[str], tuple[str, ...]]]:
    """Of each line that ``site`` obeys: its file, and what it imports, or the path that it adds."""
    for name in _pth_files(directory):
        # What cannot be decoded names nothing that could be made.
        file = os.path.join(directory, name)
        data = as_python_reads(partial(whole, file, _PTH_BYTES)) or b""
        for line in data.decode("utf-8-sig", "surrogateescape").splitlines():
            if "\0" in line:  # no path, nor code
                continue
            if line.startswith(("import ", "import\t")):
                yield name, _IMPORTS.findall(line), ()
            elif line.strip() and not line.startswith("#"):
                yield name, [], _both_ways(os.path.join(directory, line.rstrip()))


def _pth_files(directory: str) -> list[str]:
    found = as_python_reads(lambda: [entry.name for entry in entries(directory)])
    return sorted(name for name in found or () if name.endswith(".pth"))


def as_python_reads(read: Callable[[], _T]) -> _T | None:
    """What *read* returns; None for what we may not read, which Python passes over.

    No run can make it readable for the next start, which would: whatever it hangs on is reserved.
    """
    try:
        return read()
    except UnreadableError as error:
        if error.number == errno.EACCES:
            return None
        raise


def _imported() -> Iterator[str]:
    # Other threads import meanwhile.
    for name in list(sys.modules):
        module = str(name).partition(".")[0]
        if module not in sys.stdlib_module_names:
            yield module


def _warned_by() -> Iterator[str]:
    """The modules of the categories in ``PYTHONWARNINGS`` and ``-W``, there or not."""
    for option in sys.warnoptions:
        category = option.split(":")[2:3]
        if category and "." in category[0]:
            yield category[0].strip().partition(".")[0]


def _found_elsewhere(searched: tuple[Searched, ...]) -> Iterator[Searched]:
    """Modules that an importer of a development install found beside the search path."""
    roots = tuple(f"{os.fsdecode(one.path).rstrip('/')}/" for one in searched)
    for name, module in list(sys.modules.items()):
        if "." in name or name in sys.stdlib_module_names:
            continue
        spec = _spec_of(module)
        if spec is None:
            continue
        packages = list(spec.submodule_search_locations or ())
        # Of a single file, the bytecode lies beside it.
        files = [spec.origin] if spec.origin and spec.has_location and not packages else []
        for at in (*packages, *files, *map(os.path.dirname, files)):
            # One that is not absolute is a mark for an importer.
            if os.path.isabs(at) and not at.startswith(roots):
                yield Searched(os.fsencode(at), f"{name} is there", _APART, whole=at in packages)


def _linked() -> Iterator[Searched]:
    """Where the files of modules are, if a link led there from the search path."""
    real_of: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in sys.stdlib_module_names:
            continue
        spec = _spec_of(module)
        if spec is None or not spec.has_location or not os.path.isabs(spec.origin or ""):
            continue
        directory, file = os.path.split(spec.origin or "")
        if directory not in real_of:
            real_of[directory] = os.path.realpath(directory)
        at = os.path.join(real_of[directory], file)
        if os.path.islink(at):
            real = os.path.realpath(at)
            yield Searched(os.fsencode(real), f"{name} is a link to it", _APART, whole=True)


def _spec_of(module: object) -> ModuleSpec | None:
    """How *module* was found.  Its own code is not asked: that may load it, or raise."""
    try:
        spec = object.__getattribute__(module, "__dict__").get("__spec__")
    except AttributeError:
        return None
    return spec if isinstance(spec, ModuleSpec) else None


def _interpreters() -> tuple[str, str]:
    """As it was called, and that of which it is a virtual environment; "" where that is unknown."""
    return sys.executable, getattr(sys, "_base_executable", "")


def _started() -> Iterator[str]:
    # An interpreter that is embedded may have no arguments.
    arguments: list[str] = getattr(sys, "argv", [])
    for path in (*_interpreters(), *arguments[:1]):
        with contextlib.suppress(FileNotFoundError):
            if path and os.path.isfile(path):
                yield os.path.abspath(path)


def _configured() -> Iterator[str]:
    """Beside the interpreter as it was called, or one directory above it: `venv`, `getpath`."""
    for path in _interpreters():
        with contextlib.suppress(FileNotFoundError):
            if path:
                directory = os.path.dirname(os.path.abspath(path))
                for at in (directory, os.path.dirname(directory)):
                    yield os.path.join(at, "pyvenv.cfg")
