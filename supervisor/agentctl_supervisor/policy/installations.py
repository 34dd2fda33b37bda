"""The directories that programs are installed in, and which parts of them a run sees."""

import itertools
import os
from collections.abc import Iterator
from typing import Final

from agentctl_supervisor.policy.links import is_beneath
from agentctl_supervisor.policy.unsuitable_directories import Places
from agentctl_supervisor.policy.untrusted_files import UnreadableError, entries

BIN: Final = frozenset({"bin", "sbin", "shims"})
"""The names of program directories that have their libraries beside them."""

_SYSTEM: Final = ("/usr", "/opt", "/bin", "/lib", "/nix/store", "/gnu/store")
_MOST_LIBRARIES: Final = 20_000
_OF_PREFIX: Final = ("bin", "lib", "lib64", "libexec", "include")
_OF_MANAGERS: Final = ("shims", "versions", "version", "plugins", "installs", "tools")
"""The directories where pyenv, rbenv, nodenv, asdf and volta keep the versions that they manage."""

_TOOLCHAINS: Final = {"rustup": (".rustup/toolchains", ".rustup/settings.toml")}
"""Programs that start other programs, by their name on the search path, and the paths of those
programs relative to the home directory."""


def is_installation(prefix: str) -> bool:
    """Return whether *prefix* is the system's, or holds Python, Node or a virtual environment."""
    real = os.path.realpath(prefix)
    if any(is_beneath(real, system) for system in _SYSTEM):
        return True
    libraries = os.path.join(real, "lib")
    try:
        found = itertools.islice(entries(libraries), _MOST_LIBRARIES)
        names = [entry.name for entry in found]
    except UnreadableError:
        return False
    return any(
        os.path.isfile(os.path.join(libraries, name, "os.py"))
        for name in names
        if name.startswith(("python", "pypy"))
    ) or any(
        os.path.isfile(os.path.join(real, marker))
        for marker in ("lib/node_modules/npm/package.json", "pyvenv.cfg")
    )


def prefix_parts(prefix: str, places: Places) -> list[str]:
    """Return the paths to show of the installation *prefix*.

    This is all of it, unless the directory holds other files, too.  Examples are a home directory
    and a program's own hidden directory in it: beside ``~/.cargo/bin`` lies a password for
    crates.io.
    """
    real = os.path.realpath(prefix)
    names: tuple[str, ...]
    if _is_a_programs_own(real, places):
        names = () if is_installation(real) else (*_OF_PREFIX, *_OF_MANAGERS)
    else:
        is_broad = places.is_broad(real) or any(
            real == os.path.join(home, ".local") for home in places.homes
        )
        names = _OF_PREFIX if is_broad else ()
    return [os.path.join(prefix, name) for name in names] or [prefix]


def beside(directory: str, places: Places) -> Iterator[str]:
    """Yield the paths that the programs in a *directory* of the search path need.

    This is less than for the program that the run executes, because the caller names that one.
    """
    real = os.path.realpath(directory)
    prefix = os.path.dirname(real)
    if os.path.basename(real) in BIN and (
        _is_a_programs_own(prefix, places) or is_installation(prefix)
    ):
        yield from (path for path in prefix_parts(prefix, places) if os.path.exists(path))
    for name, paths in _TOOLCHAINS.items():
        if os.path.exists(os.path.join(real, name)):
            yield from (os.path.join(places.home, path) for path in paths)


def _is_a_programs_own(real: str, places: Places) -> bool:
    above, name = os.path.split(real)
    return name.startswith(".") and name != ".local" and above in places.homes
