"""What holds for every test of whole runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentctl_testkit.attacks import AttackRange
from agentctl_testkit.audit import audit
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.ordinary import Installation, installed
from agentctl_testkit.sandbox import Sandboxed, sandboxed


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


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    """Agentctl as an ordinary user has it; one for the tests of a file."""
    with installed() as installation:
        yield installation


@pytest.fixture(
    params=[
        pytest.param("root", marks=needs(Capability.ROOT, Capability.PID_NAMESPACE)),
        pytest.param("user", marks=needs(Capability.ORDINARY_PYTHON, Capability.USER_NAMESPACE)),
    ]
)
def caller(request: pytest.FixtureRequest) -> Iterator[Sandboxed]:
    """Root, then an ordinary user, each with a home and a workspace; their logs are audited."""
    wanted = request.getfixturevalue("installation") if request.param == "user" else None
    with sandboxed(wanted) as caller:
        yield caller
        assert audit(caller.directory) == []
