"""A warm interpreter for all tests of the SDK, and agents out of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentctl_testkit.sdk import ForkedAgents, StartAgent, agent_starter


@pytest.fixture(scope="session")
def agents() -> Iterator[ForkedAgents]:
    """Forks agents; a test ends what it starts."""
    with ForkedAgents() as forked:
        yield forked


@pytest.fixture(scope="session")
def trio_agents() -> Iterator[ForkedAgents]:
    """As ``agents``, with trio imported beforehand."""
    with ForkedAgents("trio") as forked:
        yield forked


@pytest.fixture
def start(agents: ForkedAgents, tmp_path: Path) -> Iterator[StartAgent]:
    """Starts ``main`` of a source text in a process of its own, and ends it with the test."""
    with agent_starter(agents, tmp_path) as starter:
        yield starter


@pytest.fixture
def start_trio(trio_agents: ForkedAgents, tmp_path: Path) -> Iterator[StartAgent]:
    """As ``start``, with trio imported in the source text and not asyncio."""
    with agent_starter(trio_agents, tmp_path, library="trio") as starter:
        yield starter
