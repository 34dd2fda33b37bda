"""Fixtures for tests of the supervisor's parts."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def shallow_afterwards(tmp_path: Path) -> Iterator[Path]:
    """A directory whose nesting may go beyond what Python's own tools can remove."""
    directory = tmp_path / "deep"
    directory.mkdir()
    yield directory
    subprocess.run(["rm", "-rf", directory], check=True)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A directory for a run, as a real path."""
    found = tmp_path.resolve() / "w"
    found.mkdir()
    return found
