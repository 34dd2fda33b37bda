"""Where this machine runs, as far as that decides what is to be done about it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_EVERY_ID: Final = 0xFFFF_FFFF


def container_kind(environ: Mapping[str, str]) -> str:
    """``docker``, ``podman``, ``container`` for any other, or nothing outside of one.

    By the marks that they leave; a fix is all that depends on it.
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
    """What systemd, as pid 1 of a container, leaves for others to read."""
    try:
        return Path("/run/systemd/container").read_text().strip()[:40]
    except (OSError, UnicodeDecodeError):
        return ""


def has_every_uid() -> bool:
    """Whether all uids exist here; in a user namespace, as in a rootless container, few do."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return True
    return sum(int(line.split()[2]) for line in lines) >= _EVERY_ID


def user_manager(environ: Mapping[str, str]) -> str:
    """``running``, ``not running``, or nothing where systemd is not pid 1."""
    if not os.path.isdir("/run/systemd/system"):
        return ""
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return "running" if os.path.exists(f"{runtime}/systemd/private") else "not running"
