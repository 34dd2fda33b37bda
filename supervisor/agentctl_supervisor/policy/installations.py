"""Directories that programs are installed in, and what to show of them."""

import itertools
import os
from collections.abc import Iterator
from typing import Final

from agentctl_supervisor.policy.links import is_beneath
from agentctl_supervisor.policy.unsuitable_directories import Places
from agentctl_supervisor.policy.untrusted_files import UnreadableError, entries

BIN: Final = frozenset({"bin", "sbin", "shims"})
"""What a directory of programs is called that has its libraries beside it."""

_SYSTEM: Final = ("/usr", "/opt", "/bin", "/lib", "/nix/store", "/gnu/store")
_MOST_LIBRARIES: Final = 20_000
_OF_PREFIX: Final = ("bin", "lib", "lib64", "libexec", "include")
_OF_MANAGERS: Final = ("shims", "versions", "version", "plugins", "installs", "tools")
"""Where pyenv, rbenv, nodenv, asdf and volta keep what they choose from."""

_TOOLCHAINS: Final = {"rustup": (".rustup/toolchains", ".rustup/settings.toml")}
"""What stands in for other programs, by its name on the search path, and where those are, from
the home directory."""


def is_installation(prefix: str) -> bool:
    """Whether *prefix* is the system's, or holds Python, Node or a virtual environment."""
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
    """What to show of the installation *prefix*: all of it, unless it holds more than that.

    As a home directory does, and what programs keep in a hidden directory of their own there:
    beside ``~/.cargo/bin`` lies a password for crates.io.
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
    """What the programs in a *directory* of the search path cannot do without.

    Less than what is shown of the program that a run is: it is the caller who names that.
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
