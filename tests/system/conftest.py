"""What holds for every test of whole runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentctl_testkit_audit import audit


@pytest.fixture(autouse=True)
def audited_logs(tmp_path: Path) -> Iterator[None]:
    """Whatever a test did to its runs, their logs keep the promises that a log can show."""
    yield
    assert audit(tmp_path) == []
