"""Directories that are too much to give to a run, or not for it at all."""

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
"""The system's: no workspace is one of them, or beneath one but `_SOURCES`."""

USR: Final = ("/usr", "/usr/local")
PROGRAMS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "share")
"""What the system's programs are made of in each of `USR`, where applications may be, too."""

_EXECUTED: Final = (
    *(path for path in _SYSTEM if path not in ("/usr", "/nix", "/gnu", "/lost+found")),
    *(f"{usr}/{name}" for usr in USR for name in PROGRAMS),
    *("/nix/store", "/nix/var", "/gnu/store"),
)
"""What of it programs are made of, and obey."""

_SOURCES: Final = ("/usr/src", "/usr/local/src")
"""Where images keep applications, in a directory of their own."""

_SHARED: Final = (
    *("/", "/home", "/root", "/tmp", "/var", "/var/tmp", "/var/lib", "/opt", "/srv", "/mnt"),
    *("/media", "/run", "/run/user", *_SOURCES),
)
"""Everybody's: no workspace is one of them, but what lies in one may be."""


@dataclass(frozen=True)
class Places:
    """What is known of the caller's directories, as real paths.

    ``homes``: the home directories of the caller, and of whoever became the caller by sudo.
    ``home``: the one that programs are told.
    ``states``: where agentctl keeps runs, sockets and configuration, there or not.
    ``obeyed``: the same and the user's own file of settings, as they are written, links and all.
    """

    homes: tuple[str, ...]
    home: str
    states: tuple[str, ...]
    obeyed: tuple[str, ...] = ()

    def is_broad(self, path: str) -> bool:
        """Whether *path* is a home directory, something above one, or everybody's."""
        return path in _SHARED or any(is_beneath(home, path) for home in self.homes)

    def why_no_workspace(self, path: str, others: Iterable[str] = ()) -> str:
        """Why no run may have *path* to write to, completing "PATH is"; empty if one may.

        *others*: its other names.
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
        """Why a run may not write to what has *name* for another name, too.

        There may be applications in the system's directories, under the name that they are used by.
        """
        if any(is_beneath(name, system) or lies_inside(system, name) for system in _EXECUTED):
            return "the system's"
        return self.why_state(name)

    def why_too_much(self, path: str, shared: tuple[str, ...] = ()) -> str:
        """Why *path* is too much for any run, which one of *shared* is, too; empty if it is not."""
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
        """Why no run may even read *path*; empty if one may."""
        for state in self.states:
            if is_beneath(path, state):
                return "where agentctl keeps its state"
        return ""


def places(environ: Mapping[str, str]) -> Places:
    """What *environ* and the user database say."""
    try:
        listed = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        listed = ""
    told = environ.get("HOME", "")
    all_of_them = (told, listed, _home_before_sudo(environ))
    homes = [os.path.realpath(home) for home in all_of_them if home.startswith("/")]
    # A home of "/", that of many a service, is nobody's in particular.
    homes = [home for home in dict.fromkeys(homes) if home != "/"]
    states, settings = _states(environ)
    return Places(
        tuple(homes),
        homes[0] if homes else "/",
        states=tuple(dict.fromkeys(map(os.path.realpath, states))),
        obeyed=(*dict.fromkeys(states), settings),
    )


def _home_before_sudo(environ: Mapping[str, str]) -> str:
    """The home directory of the person behind ``sudo``, which that sets HOME away from."""
    uid = environ.get("SUDO_UID", "")
    if os.geteuid() != 0 or not uid.isdecimal() or len(uid) > 10:
        return ""
    try:
        return pwd.getpwuid(int(uid)).pw_dir
    except (KeyError, OverflowError):
        return ""


def _is_its_owners_home(path: str) -> bool:
    """Whether *path* is somebody's home directory: root comes into those of others, too."""
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
    """The directories, and the user's own file of settings, absolute, as they are written."""
    usual = {name: value for name, value in environ.items() if name != "AGENTCTL_HOME"}
    found: list[str] = []
    for variables in (environ, usual):
        try:
            found.append(os.fspath(state_root(variables)))
        except StateDirectoryError:
            pass
        found.append(os.fspath(runtime_directory(variables)))
    # Also where sudo has left another user's home in the environment: then it is that user's.
    found.append(os.path.join(environ.get("HOME", ""), ".local/state/agentctl"))
    # Long paths of sockets are shortened to something in here.
    found.append(f"/tmp/agentctl-{os.geteuid()}")
    config = environ.get("XDG_CONFIG_HOME", "")
    if not config.startswith("/"):
        config = os.path.join(environ.get("HOME", "/"), ".config")
    found.append(os.path.join(config, "agentctl"))
    return [path for path in found if path.startswith("/")], os.path.join(found[-1], "config.toml")


def refuse_broad(path: str, option: str, places_: Places, others: Iterable[str] = ()) -> None:
    """See that *path*, of which *others* are other names, may be given to a run by *option*.

    Raises:
        SpecError: it is everything, a home directory or something above one, a kernel's file
            system, or agentctl's own state.
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
