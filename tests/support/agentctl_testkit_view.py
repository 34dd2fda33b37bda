"""A view of a run that holds what programs and interpreters need, made by hand."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from agentctl_protocol.spawning import Bind, Link, Part, Scratch

MEBIBYTE = 1 << 20


def system() -> Iterator[Part]:
    """Programs, libraries and configuration, read-only; an own /tmp."""
    for name in ("/usr", "/etc", "/opt"):
        yield Bind(path=name.encode(), optional=True)
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = f"/{name}"
        if os.path.islink(path):
            yield Link(path=path.encode(), target=os.readlink(path).encode())
        elif os.path.isdir(path):
            yield Bind(path=path.encode())
    yield Scratch(path=b"/tmp", size_bytes=16 * MEBIBYTE, mode=0o1777)


def interpreter() -> Iterator[Part]:
    """What this interpreter imports from, wherever it lies."""
    places = {os.path.realpath(path) for path in (*sys.path, sys.prefix, sys.base_prefix) if path}
    for path in sorted(places):
        if os.path.isdir(path) and not path.startswith(("/usr/", "/etc/", "/opt/")):
            yield Bind(path=path.encode(), mapped=True)


def workspace(path: Path) -> Bind:
    """A place that the run may write to."""
    return Bind(path=os.fsencode(path), writable=True, mapped=True)


def sane(workspace_path: Path) -> tuple[Part, ...]:
    """All of it, sorted so that parents come first."""
    parts = [*system(), *interpreter(), workspace(workspace_path)]
    return tuple(sorted(parts, key=lambda part: part.path))
