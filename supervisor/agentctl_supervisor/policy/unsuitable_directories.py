"""The directories that a run may not be given, because they hold too much or are not for runs."""

import os
import pwd
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from agentctl_protocol.spec import SpecError
from agentctl_supervisor.errors import StateDirectoryError
from agentctl_supervisor.filesystem.state_paths import runtime_directory, state_root
from agentctl_supervisor.policy.links import cut_short, is_beneath, lies_inside
from agentctl_supervisor.policy.untrusted_files import status

_SYSTEM: Final = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin"),
    *("/sys", "/usr", "/nix", "/gnu", "/snap", "/lost+found"),
)
"""The system's directories.  A workspace is none of them, and lies beneath none of them except
beneath `_SOURCES`."""

USR: Final = ("/usr", "/usr/local")
PROGRAMS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "share")
"""The directories in each of `USR` that hold the system's programs; applications may be beside
them."""

_EXECUTED: Final = (
    *(path for path in _SYSTEM if path not in ("/usr", "/nix", "/gnu", "/lost+found")),
    *(f"{usr}/{name}" for usr in USR for name in PROGRAMS),
    *("/nix/store", "/nix/var", "/gnu/store"),
)
"""The parts of `_SYSTEM` that hold the code and the settings of programs."""

_SOURCES: Final = ("/usr/src", "/usr/local/src")
"""Directories where container images keep applications, each in its own subdirectory."""

_SHARED: Final = (
    *("/", "/home", "/root", "/tmp", "/var", "/var/tmp", "/var/lib", "/opt", "/srv", "/mnt"),
    *("/media", "/run", "/run/user", *_SOURCES),
)
"""Directories that all users share.  A workspace is none of them, but may lie in one."""


@dataclass(frozen=True)
class Places:
    """The caller's directories, as real paths.

    ``homes``: the home directories of the caller, and of the user who became the caller by sudo.
    ``home``: the home directory that programs are told.
    ``states``: directories where agentctl keeps runs, sockets and configuration.  They need not
    exist.
    ``obeyed``: the same directories and the user's settings file, with links not resolved.
    """

    homes: tuple[str, ...]
    home: str
    states: tuple[str, ...]
    obeyed: tuple[str, ...] = ()

    def is_broad(self, path: str) -> bool:
        """Return whether *path* is a home directory, lies above one, or is in `_SHARED`."""
        return path in _SHARED or any(is_beneath(home, path) for home in self.homes)

    def why_no_workspace(self, path: str, others: Iterable[str] = ()) -> str:
        """Return why no run may write to *path*; empty if a run may.

        The text completes the sentence "PATH is ...".  *others*: the other names of *path*.
        """
        if why := self.why_too_much(path, _SHARED):
            return why
        for system in _SYSTEM:
            if is_beneath(path, system) and not any(lies_inside(path, s) for s in _SOURCES):
                return "the system's"
        if why := self.why_state(path):
            return why
        for name in others:
            if why := self.why_too_much(name) or self.why_kept(name):
                return f"another name of {cut_short(name)}: {why}"
        return ""

    def why_kept(self, name: str) -> str:
        """Return why a run may not write to a directory that has *name* as another name.

        This allows more than `why_no_workspace`: an application may lie in one of the system's
        directories under its other name.
        """
        if any(is_beneath(name, system) or lies_inside(system, name) for system in _EXECUTED):
            return "the system's"
        return self.why_state(name)

    def why_too_much(self, path: str, shared: tuple[str, ...] = ()) -> str:
        """Return why *path* is too much for any run; empty if it is not.

        A path in *shared* is too much, too.
        """
        if path == "/":
            return "the whole machine"
        if path in self.homes:
            return "a home directory"
        if any(lies_inside(home, path) for home in self.homes):
            return "above a home directory"
        if path in shared:
            return "a directory that programs share"
        if _is_its_owners_home(path):
            return "a home directory"
        return ""

    def why_state(self, path: str) -> str:
        """Return why no run may even read *path*; empty if a run may."""
        for state in self.states:
            if is_beneath(path, state):
                return "where agentctl keeps its state"
        return ""


def places(environ: Mapping[str, str]) -> Places:
    """Return the caller's directories from *environ* and the user database."""
    try:
        listed = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        listed = ""
    told = environ.get("HOME", "")
    all_of_them = (told, listed, _home_before_sudo(environ))
    homes = [os.path.realpath(home) for home in all_of_them if home.startswith("/")]
    # Many services have "/" as their home; it is not the home of one user.
    homes = [home for home in dict.fromkeys(homes) if home != "/"]
    states, settings = _states(environ)
    return Places(
        tuple(homes),
        homes[0] if homes else "/",
        states=tuple(dict.fromkeys(map(os.path.realpath, states))),
        obeyed=(*dict.fromkeys(states), settings),
    )


def _home_before_sudo(environ: Mapping[str, str]) -> str:
    """Return the home directory of the user who called ``sudo``, since ``sudo`` changes HOME."""
    uid = environ.get("SUDO_UID", "")
    if os.geteuid() != 0 or not uid.isdecimal() or len(uid) > 10:
        return ""
    try:
        return pwd.getpwuid(int(uid)).pw_dir
    except (KeyError, OverflowError):
        return ""


def _is_its_owners_home(path: str) -> bool:
    """Return whether *path* is the home directory of its owner.

    Only for root as the caller, because root can enter the home directories of other users.
    """
    if os.geteuid() != 0:
        return False
    found = status(path, follow=True)
    if found is None:
        return False
    try:
        home = pwd.getpwuid(found.st_uid).pw_dir
    except KeyError:
        return False
    return home.startswith("/") and home != "/" and os.path.realpath(home) == path


def _states(environ: Mapping[str, str]) -> tuple[list[str], str]:
    """Return agentctl's directories and the user's settings file, absolute, links not resolved."""
    usual = {name: value for name, value in environ.items() if name != "AGENTCTL_HOME"}
    found: list[str] = []
    for variables in (environ, usual):
        try:
            found.append(os.fspath(state_root(variables)))
        except StateDirectoryError:
            pass
        found.append(os.fspath(runtime_directory(variables)))
    # sudo may leave HOME of another user in the environment: then this is that user's state.
    found.append(os.path.join(environ.get("HOME", ""), ".local/state/agentctl"))
    # Sockets whose paths are too long get a short path in this directory.
    found.append(f"/tmp/agentctl-{os.geteuid()}")
    config = environ.get("XDG_CONFIG_HOME", "")
    if not config.startswith("/"):
        config = os.path.join(environ.get("HOME", "/"), ".config")
    found.append(os.path.join(config, "agentctl"))
    return [path for path in found if path.startswith("/")], os.path.join(found[-1], "config.toml")


def refuse_broad(path: str, option: str, places_: Places, others: Iterable[str] = ()) -> None:
    """Check that *path*, which also has the names *others*, may be given to a run by *option*.

    Raises:
        SpecError: *path* is ``/``, a home directory or a directory above one, in a file system
            of the kernel (``/proc``, ``/sys``, ``/dev``), or agentctl's own state.
    """
    for name in (path, *others):
        told = cut_short(path)
        if name != path:
            told += f", another name of {cut_short(name)},"
        if why := places_.why_state(name):
            raise SpecError(
                f"{option} {told} is {why}",
                "copy what is needed to somewhere else",
            )
        if places_.why_too_much(name):
            raise SpecError(
                f"{option} {told} is too much: keys and passwords are in it",
                "name the directories that are needed",
            )
        for kernel in ("/proc", "/sys", "/dev"):
            if is_beneath(name, kernel):
                raise SpecError(f"{option} {told}: the run has a {kernel} of its own, or none")
