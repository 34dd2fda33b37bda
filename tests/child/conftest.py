"""A warm interpreter for all tests of the SDK, and agents out of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentctl_testkit_sdk import ForkedAgents, StartAgent, agent_starter


@pytest.fixture(scope="session")
def agents() -> Iterator[ForkedAgents]:
    """Forks agents; a test ends what it starts."""
    with ForkedAgents() as forked:
        yield forked


@pytest.fixture
def start(agents: ForkedAgents, tmp_path: Path) -> Iterator[StartAgent]:
    """Starts ``main`` of a source text in a process of its own, and ends it with the test."""
    with agent_starter(agents, tmp_path) as starter:
        yield starter
