"""What holds for every test of whole runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentctl_testkit_attacks import AttackRange
from agentctl_testkit_audit import audit


@pytest.fixture(autouse=True)
def audited_logs(tmp_path: Path) -> Iterator[None]:
    """Whatever a test did to its runs, their logs keep the promises that a log can show."""
    yield
    assert audit(tmp_path) == []


@pytest.fixture(scope="session")
def attack_range(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackRange]:
    """Where attacks are tried outside and inside; one for all, as its callers take seconds."""
    with AttackRange.open(tmp_path_factory.mktemp("attacks")) as attack_range:
        yield attack_range
