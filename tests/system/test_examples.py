"""The examples do what they say, started as a user would start them."""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentctl_testkit import MARKER_VARIABLE, REPOSITORY, AgentctlHome, alive, wait_until_gone

EXAMPLES = REPOSITORY / "examples"
AGENT = f"{EXAMPLES / 'research_agent.py'}:main"
QUESTION = "What does the warden do?"
FAST = {"MODEL_WORDS_PER_S": "2000"}
SLOW = {"MODEL_WORDS_PER_S": "20"}


def python(
    home: AgentctlHome, *arguments: str, **popen: Any
) -> "contextlib.AbstractContextManager[subprocess.Popen[str]]":
    """An example in an interpreter of its own."""
    environment = {**home.environment, **popen.pop("environment", {})}
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **popen,
    )


# --- research_agent.py ------------------------------------------------------


def test_the_research_agent_answers(home: AgentctlHome, marker: str) -> None:
    """Its calls, what the model said and cost, and where it stood are in the report."""
    done = home.run(
        *("run", "-o", "json", "--input", json.dumps(QUESTION), AGENT),
        environment={MARKER_VARIABLE: marker, **FAST},
    )
    report = done.json()
    assert (done.code, report["result"]) == (0, "succeeded"), done.err
    calls = [(call["kind"], call["name"], call["outcome"]) for call in report["calls"]]
    assert calls == [
        ("model", "stub-1", "ok"),
        ("tool", "search", "ok"),
        ("model", "stub-1", "ok"),
        ("tool", "read", "ok"),
        ("model", "stub-1", "ok"),
        ("tool", "read", "ok"),
        ("model", "stub-1", "ok"),
    ]
    assert report["value"]["answer"].startswith("This is what I found.")
    assert report["partial_text"].endswith(report["value"]["answer"])
    usage = report["usage"]["stub-1"]
    assert usage["quality"] == "reported"
    assert usage["completion_tokens"] == len(report["partial_text"].split())
    roles = [message["role"] for message in report["checkpoint"]]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant", "tool"]


def test_the_research_agent_can_be_tried_by_hand(home: AgentctlHome) -> None:
    """Without agentctl its calls are made and its reports go nowhere."""
    with python(home, AGENT.removesuffix(":main"), environment=FAST) as agent:
        out, err = agent.communicate(timeout=30)
    assert (agent.returncode, err) == (0, "")
    assert out.startswith("This is what I found.")
    assert not home.root.exists()


def test_a_stopped_research_agent_has_saved_its_work(home: AgentctlHome, marker: str) -> None:
    """Stopped in mid-sentence it ends when it is asked to, and nothing it knew is lost."""
    environment = {MARKER_VARIABLE: marker, **SLOW}
    started = home.run("run", "-d", "--name", "it", AGENT, environment=environment)
    assert started.code == 0, started.err
    with home.start("events", "-f", "it") as events:
        assert events.stdout is not None
        spoken = 0
        for line in events.stdout:
            spoken += json.loads(line)["type"] == "text"
            if spoken == 20:  # in the last answer, which takes seconds
                break
        stopped = home.run("stop", "it")
        events.stdout.read()
    assert stopped.code == 0, stopped.err
    report = home.run("show", "it", "-o", "json").json()
    assert (report["result"], report["processes"]["survivors"]) == ("stopped", 0)
    assert [(rung["step"], rung["answered"]) for rung in report["ladder"]] == [("asked", "yes")]
    assert report["calls"][-1]["outcome"] == "cancelled"
    assert report["usage"]["stub-1"]["quality"] in ("partial", "estimated")
    roles = [message["role"] for message in report["checkpoint"]]
    assert roles[:3] == ["user", "assistant", "tool"]
    assert roles[-1] == "tool", "half an answer was saved as a whole one"
    assert len(report["partial_text"].split()) >= 10


# --- run_tool.py ------------------------------------------------------------


def test_a_snippet_gives_its_value_and_what_it_wrote(home: AgentctlHome) -> None:
    """The value of the last expression, stdout and stderr, each for itself."""
    code = 'import sys\nprint("out")\nprint("err", file=sys.stderr)\n{"n": 6 * 7}'
    with python(home, str(EXAMPLES / "run_tool.py"), stdin=subprocess.PIPE) as host:
        out, err = host.communicate(code, timeout=30)
    assert out.splitlines() == [
        "result: succeeded - it returned a value",
        'value:  {"n": 42}',
        "stdout: out",
        "stderr: err",
    ]
    assert (host.returncode, err) == (0, "")


def test_a_snippet_that_fails_says_why_and_sees_no_keys(home: AgentctlHome) -> None:
    """The exception with its line; the host's environment is not the snippet's."""
    code = 'import os\nprint("API_KEY" in os.environ)\n\nraise KeyError("no such thing")'
    with python(
        home,
        str(EXAMPLES / "run_tool.py"),
        stdin=subprocess.PIPE,
        environment={"API_KEY": "secret"},
    ) as host:
        out, _ = host.communicate(code, timeout=30)
    assert host.returncode == 1
    assert "result: failed - KeyError: 'no such thing'" in out
    assert "stdout: False" in out
    assert 'File "<snippet>", line 4' in out


def test_a_snippet_that_will_not_end_is_ended(home: AgentctlHome, marker: str) -> None:
    """Two seconds are two seconds, for what it started in another session as well."""
    code = f"""
import signal, subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
environment = {{{MARKER_VARIABLE!r}: {marker!r}}}
subprocess.Popen(["sleep", "60"], env=environment, start_new_session=True)
print("started", flush=True)
while True:
    try:
        signal.pause()
    except BaseException:
        pass
"""
    with python(home, str(EXAMPLES / "run_tool.py"), stdin=subprocess.PIPE) as host:
        out, _ = host.communicate(code, timeout=30)
    assert out.splitlines()[:3] == [
        "result: limit - time limit of 2 s: it ignored the request and SIGTERM and was killed",
        "value:  null",
        "stdout: started",
    ]
    assert host.returncode == 124
    assert alive(marker) == []


# --- web_handler.py ---------------------------------------------------------


@contextlib.contextmanager
def web_service(home: AgentctlHome, path: Path, marker: str) -> Iterator[None]:
    """The example's service on the socket *path*."""
    environment = {MARKER_VARIABLE: marker, **SLOW}
    with python(home, str(EXAMPLES / "web_handler.py"), str(path), environment=environment) as web:
        assert web.stdout is not None
        assert web.stdout.readline() == f"listening on {path}\n"
        try:
            yield
        finally:
            web.terminate()


def ask(path: Path, method: str, target: str, body: object = None) -> tuple[int, Any]:
    """Status and JSON for one request over the socket *path*."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    with contextlib.closing(connection):
        connection.sock.connect(os.fspath(path))
        connection.request(method, target, None if body is None else json.dumps(body))
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def test_the_web_service_starts_and_stops_runs(
    home: AgentctlHome, tmp_path: Path, marker: str
) -> None:
    """A run is started, seen, stopped with proof, and stopped again without harm."""
    path = tmp_path / "web.sock"
    with web_service(home, path, marker):
        assert path.stat().st_mode & 0o777 == 0o600
        status, started = ask(path, "POST", "/runs", {"question": QUESTION})
        assert status == 201
        run = f"/runs/{started['id']}"
        assert ask(path, "GET", "/runs") == (200, [{"id": started["id"], "state": "running"}])
        status, stopped = ask(path, "POST", f"{run}:stop")
        assert (status, stopped["gone"], stopped["already"]) == (200, True, False)
        assert "(asked over HTTP)" in stopped["detail"]
        _, again = ask(path, "POST", f"{run}:stop")
        assert (again["gone"], again["already"]) == (True, True)
        status, shown = ask(path, "GET", run)
        assert (status, shown["state"], shown["result"]) == (200, "finished", "stopped")
        assert ask(path, "GET", "/runs/nobody")[0] == 404
        assert ask(path, "POST", "/runs", {"no": "question"})[0] == 400
        assert ask(path, "GET", "/runs") == (200, [])
    assert wait_until_gone(marker, within_s=10) == []


# --- demo.py ----------------------------------------------------------------


def test_the_demonstration_ends_well(home: AgentctlHome) -> None:
    """Both acts leave nothing behind, and its own temporary state is gone, too."""
    with python(home, str(EXAMPLES / "demo.py")) as demo:
        out, err = demo.communicate(timeout=60)
    assert (demo.returncode, err) == (0, "")
    assert out.rstrip().endswith("Nothing survived.")
    assert out.count("0 processes carry its marker in /proc") == 2
    assert not home.root.exists()
