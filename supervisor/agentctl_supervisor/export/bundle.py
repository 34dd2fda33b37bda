"""Writes a run to one tar file: its spec, its log, its report, and the artifacts that it named.

An artifact is read at its current place, by a path that the agent chose.  `workspace.artifacts`
says which artifacts are refused.  ``MANIFEST.json`` lists those that are left out.
"""

import io
import os
import tarfile
import time
from collections.abc import Sequence
from typing import BinaryIO

import msgspec

from agentctl_protocol.os_names import display
from agentctl_protocol.visible_text import is_visible
from agentctl_supervisor.filesystem.writable_roots import roots_of
from agentctl_supervisor.observe.list_runs import current_report
from agentctl_supervisor.store.log_reader import segment_name
from agentctl_supervisor.store.run_directory import RunDirectory
from agentctl_supervisor.text.json_text import json_page
from agentctl_supervisor.workspace.artifacts import (
    MAX_FILE_BYTES,
    Artifact,
    Refused,
    examine,
    open_artifact,
)


class Manifest(msgspec.Struct, frozen=True):
    """The contents of a bundle.  ``left_out``: ``PATH: why`` for each artifact that is missing."""

    run: str
    schema: int = 1
    files: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def write_bundle(directory: RunDirectory, out: BinaryIO) -> Manifest:
    """Write the bundle of the run in *directory* to *out*.

    The bundle of a live run holds what exists now.  All files are below a directory that has the
    run's id as its name.  Blocks.

    Raises:
        NoSuchRunError: the run was removed meanwhile.
        DamagedRunError: the run's spec or report cannot be read.
        OSError: *out* cannot be written.
    """
    with directory.while_there():
        manifest = _write(directory, out)
        # A file that was not found may be missing because the run was removed: this raises then.
        os.lstat(directory.path)
    return manifest


def _write(directory: RunDirectory, out: BinaryIO) -> Manifest:
    report = current_report(directory)
    spec = directory.read_spec()
    files: list[str] = []
    left_out: list[str] = []
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:

        def add(name: str, data: bytes) -> None:
            _add(tar, f"{directory.id}/{name}", io.BytesIO(data), len(data))
            files.append(name)

        add("spec.json", json_page(spec.stored()).encode())
        add("report.json", json_page(report).encode())
        number = 1
        while (path := directory.path / segment_name(number)).exists():
            with path.open("rb") as segment:
                # The log of a live run grows meanwhile.  At its size now, all records are complete
                # except perhaps the last.
                size = os.fstat(segment.fileno()).st_size
                _add(tar, f"{directory.id}/log/{path.name}", segment, size)
            files.append(f"log/{path.name}")
            number += 1
        roots = roots_of(report.workspace.path, spec)
        if not roots and spec.cwd is not None:  # a level without a workspace
            roots = (os.fsencode(spec.cwd),)
        for artifact in examine(report.artifacts, roots):
            refused = artifact.refused
            if not refused and _place(artifact.path) in files:
                refused = f"it would be {_place(artifact.path)} as well"
            refused = refused or _add_artifact(tar, directory.id, artifact, roots)
            if refused:
                left_out.append(f"{display(artifact.path)}: {refused}")
            else:
                files.append(_place(artifact.path))
        manifest = Manifest(directory.id, files=tuple(files), left_out=tuple(left_out))
        add("MANIFEST.json", json_page(manifest).encode())
    return manifest


def _place(path: str) -> str:
    """Return the path of an artifact in the bundle: always below ``artifacts/``.

    Characters that could control the terminal of a person who lists or unpacks the bundle are
    escaped as in Python.
    """
    shown = "".join(c if is_visible(c) else ascii(c)[1:-1] for c in display(path))
    return "artifacts" + os.path.normpath(f"/./{shown}")


def _add_artifact(
    tar: tarfile.TarFile, run_id: str, artifact: Artifact, roots: Sequence[bytes]
) -> str:
    """Add *artifact*; return why it is left out, or an empty string."""
    try:
        fd = open_artifact(artifact.path, roots)
    except Refused as error:
        return str(error)
    with open(fd, "rb") as file:
        size = min(os.fstat(fd).st_size, MAX_FILE_BYTES)
        _add(tar, f"{run_id}/{_place(artifact.path)}", file, size)
    return ""


def _add(tar: tarfile.TarFile, name: str, source: BinaryIO, size: int) -> None:
    """Add *source* as a plain file with mode 0644; the original's owner and mode are not kept."""
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o644, int(time.time())
    tar.addfile(member, _Padded(source, size))


class _Padded:
    """A reader of exactly *size* bytes.

    If the file was truncated meanwhile, zeros fill the rest, and there is no error.
    """

    def __init__(self, source: BinaryIO, size: int) -> None:
        self._source, self._left = source, size

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._source.read(wanted)
        self._left -= wanted
        return data.ljust(wanted, b"\0")
