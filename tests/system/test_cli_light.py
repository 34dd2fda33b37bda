"""The commands that look and stop import no event loop: they work at once on a slow machine."""

import json
import subprocess
import sys

import pytest

from agentctl_testkit import AgentctlHome

_HEAVY = {"trio", "psutil", "asyncio", "concurrent.futures"}


@pytest.mark.parametrize(
    "arguments",
    [["stop", "--all"], ["kill", "nosuch"], ["ps", "-a"], ["show", "nosuch"], ["help"]],
    ids=" ".join,
)
def test_no_event_loop_is_imported(home: AgentctlHome, arguments: list[str]) -> None:
    """`sys.modules` at the end has neither trio nor psutil nor asyncio."""
    code = (
        "import json, sys\n"
        "from agentctl_supervisor.cli import main\n"
        f"main({arguments!r})\n"
        "print(json.dumps(list(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=home.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(json.loads(done.stderr.splitlines()[-1]))
    assert "agentctl_supervisor.cli.arguments" in loaded
    # What msgspec loads by itself is not ours to judge.
    assert not loaded & _HEAVY - _loaded_by_msgspec()


def test_a_client_is_importable_without_an_event_loop() -> None:
    """A web handler that wants to stop a run loads nothing that it does not need."""
    code = "import sys, agentctl_supervisor.client; print('trio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"False\n"


def _loaded_by_msgspec() -> set[str]:
    code = "import sys, json, msgspec; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return set(json.loads(done.stdout)) - {"trio", "psutil", "asyncio"}
