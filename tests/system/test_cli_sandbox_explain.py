"""``agentctl run --explain``: what a run would be given, and nothing is run."""

import os
import sys
from collections.abc import Iterator

import pytest

from agentctl_protocol.vocabulary import Sandbox
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.sandbox import Sandboxed, sandboxed


@pytest.fixture
def caller() -> Iterator[Sandboxed]:
    with sandboxed(None) as caller:
        yield caller


@pytest.mark.parametrize("level", list(Sandbox))
def test_it_says_all_and_does_nothing(caller: Sandboxed, level: Sandbox) -> None:
    """On lines for a terminal, at every level; no run is made, and no directory of state."""
    done = caller.run("run", "--explain", "--sandbox", level, "--", "python3", "-c", "1")
    assert (done.code, done.err) == (0, "")
    assert max(map(len, done.out.splitlines())) <= 80
    assert "command      python3 -c 1" in done.out
    assert f"sandbox      {level} (flag --sandbox)" in done.out
    assert "steps, in this order" in done.out
    assert not caller.home.root.exists()


def test_it_says_where_each_thing_comes_from(caller: Sandboxed) -> None:
    """A person who wonders why a run cannot do something finds the line."""
    caller.make("workspace/.git/hooks/x", "")
    caller.make("workspace/agent.py", "")
    data = caller.make("data")
    options = ("--ro", "../data", "--env", "TOKEN=word", "--net", "host", "--time", "10s")
    words = ("run", "--explain", "--sandbox", "strict", *options)
    told = caller.run(*words, "-o", "json", "--", "python3", "agent.py").json()
    assert (told["workspace"], told["workspace_private"]) == (str(caller.workspace), False)
    readable = {shown["path"]: shown["why"] for shown in told["readable"]}
    assert readable[str(data)] == "--ro"
    assert readable["/usr"] == ("the interpreter" if sys.base_prefix == "/usr" else "the system")
    assert readable[str(caller.workspace / "agent.py")] == "the program"
    assert told["protected"] == [{"path": ".git/hooks", "why": "git executes them"}]
    assert ".vscode" in told["missing"]
    assert "TOKEN" in told["environment"]
    assert told["origins"]["net"] == "flag --net"
    assert {"name": "time", "value": 10.0, "origin": "flag --time"} in told["limits"]
    assert told["steps"][-1]["name"] == "seccomp"
    assert "word" not in caller.run(*words, "--", "x").out


def test_it_says_why_a_workspace_is_a_fresh_one(caller: Sandboxed) -> None:
    """And where it would be."""
    told = caller.run(
        *("run", "--explain", "--sandbox", "strict", "-o", "json", "--", "true"),
        cwd=caller.directory,
    ).json()
    assert told["workspace_private"] is True
    assert told["workspace_why"] == "a home directory"
    assert told["workspace"] == os.fspath(caller.home.root / "runs/r-xxxxxxxx/workspace")


@needs(Capability.ROOT)
def test_it_says_whose_uid_a_run_has(caller: Sandboxed) -> None:
    """Root's runs are somebody else."""
    words = ("run", "--explain", "-o", "json", "--sandbox")
    assert caller.run(*words, "strict", "--", "true").json()["own_uid"] is True
    assert caller.run(*words, "basic", "--", "true").json()["own_uid"] is False
    assert caller.run(*words, "basic", "--", "true").json()["everything"] is True


def test_the_default_is_strict_and_the_environment_can_name_another(caller: Sandboxed) -> None:
    """And it is told which of the two it was."""
    words = ("run", "--explain", "-o", "json", "--", "true")
    told = caller.run(*words, environment={"AGENTCTL_SANDBOX": ""}).json()
    assert (told["sandbox"], told["network"]) == ("strict", "none")
    assert told["origins"]["sandbox"] == "default"
    told = caller.run(*words, environment={"AGENTCTL_SANDBOX": "standard"}).json()
    assert told["sandbox"] == "standard"
    assert told["origins"]["sandbox"] == "env AGENTCTL_SANDBOX"
