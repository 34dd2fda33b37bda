"""A run as one tar file: its spec, its log, its report, and the artifacts that it named.

An artifact is read where it lies now, by a path that the agent chose: see
`workspace.artifacts` for what is refused.  What is left out is said in ``MANIFEST.json``.
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
    """What is in a bundle.  ``left_out``: ``PATH: why``, one for each artifact that is not."""

    run: str
    schema: int = 1
    files: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def write_bundle(directory: RunDirectory, out: BinaryIO) -> Manifest:
    """Write the bundle of the run in *directory* to *out*; a run that lives gets what there is.

    Everything is below a directory named as the run.  Blocks.

    Raises:
        NoSuchRunError: it was removed meanwhile.
        DamagedRunError: its spec or report cannot be read.
        OSError: *out* takes no more.
    """
    with directory.while_there():
        manifest = _write(directory, out)
        # What was looked for in vain had been removed, perhaps.
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
                # A live run's log grows meanwhile: what it has now is whole records but the last.
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
    """Where an artifact goes: below ``artifacts/``, whatever the agent called it.

    A name that could do something to the terminal of whoever lists or unpacks the bundle is
    written as Python would escape it.
    """
    shown = "".join(c if is_visible(c) else ascii(c)[1:-1] for c in display(path))
    return "artifacts" + os.path.normpath(f"/./{shown}")


def _add_artifact(
    tar: tarfile.TarFile, run_id: str, artifact: Artifact, roots: Sequence[bytes]
) -> str:
    """Add *artifact*; why it is left out, or nothing."""
    try:
        fd = open_artifact(artifact.path, roots)
    except Refused as error:
        return str(error)
    with open(fd, "rb") as file:
        size = min(os.fstat(fd).st_size, MAX_FILE_BYTES)
        _add(tar, f"{run_id}/{_place(artifact.path)}", file, size)
    return ""


def _add(tar: tarfile.TarFile, name: str, source: BinaryIO, size: int) -> None:
    """A plain file of ours, whoever the original belongs to and whatever bits it has."""
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o644, int(time.time())
    tar.addfile(member, _Padded(source, size))


class _Padded:
    """Reads exactly *size* bytes: a file that was cut meanwhile ends in zeros, not in an error."""

    def __init__(self, source: BinaryIO, size: int) -> None:
        self._source, self._left = source, size

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._source.read(wanted)
        self._left -= wanted
        return data.ljust(wanted, b"\0")
