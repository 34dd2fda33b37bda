"""Detects the container, uid map and user manager of this machine, which decide the fixes."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_EVERY_ID: Final = 0xFFFF_FFFF


def container_kind(environ: Mapping[str, str]) -> str:
    """Return ``docker``, ``podman``, ``container`` for any other container, or empty for none.

    The files and variables that a container engine leaves decide.  An error here only changes
    the suggested fix.
    """
    if os.path.exists("/run/.containerenv"):
        return "podman"
    if os.path.exists("/.dockerenv"):
        return "docker"
    named = environ.get("container", "") or _of_first_process()
    if named in ("podman", "docker"):
        return named
    if named or "KUBERNETES_SERVICE_HOST" in environ:
        return "container"
    return ""


def _of_first_process() -> str:
    """Return the container's kind as systemd, if it is pid 1 there, has written it to a file."""
    try:
        return Path("/run/systemd/container").read_text().strip()[:40]
    except (OSError, UnicodeDecodeError):
        return ""


def has_every_uid() -> bool:
    """Return True if all uids exist here.

    A user namespace, as in a rootless container, has only a few.
    """
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return True
    return sum(int(line.split()[2]) for line in lines) >= _EVERY_ID


def user_manager(environ: Mapping[str, str]) -> str:
    """Return ``running``, ``not running``, or empty if systemd is not pid 1."""
    if not os.path.isdir("/run/systemd/system"):
        return ""
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return "running" if os.path.exists(f"{runtime}/systemd/private") else "not running"
