"""What the tests of what is built share."""

import subprocess
import sys
from pathlib import Path

import pytest

from agentctl_testkit import REPOSITORY


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this tree."""
    directory = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", directory, REPOSITORY],
        check=True,
    )
    [path] = directory.glob("*.whl")
    return path
