"""What of a workspace agentctl's own processes open: a closed list, that of docs/sandbox.md.

A run can leave there what blocks its opener, lies to its reader or is imported by whoever
looks for a module.  So each command is traced in a workspace that is full of such things.
"""

import os
import re
import shlex
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from agentctl_testkit import ORDINARY_UID, REPOSITORY
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.ordinary import Installation, installed
from agentctl_testkit.sandbox import Sandboxed, sandboxed
from agentctl_testkit.trace import Opened, Trace, traced

_PAGE: Final = REPOSITORY / "docs" / "sandbox.md"
_SECTION: Final = "## What agentctl opens in a workspace"

_READ: Final = {
    "agentctl.toml": "agentctl.toml",
    "pyproject.toml": "pyproject.toml",
    ".git/config": ".git/config",
    ".git/config.worktree": ".git/config.worktree",
    ".git/modules/m/config": ".git/modules/*/config",
    ".git/modules/m/config.worktree": ".git/modules/*/config",
    ".git/worktrees/w/gitdir": ".git/worktrees/*/gitdir",
    ".git/worktrees/w/config.worktree": ".git/worktrees/*/gitdir",
    ".git": ".git",
    "shared.cfg": "include.path",
    "venv/pyvenv.cfg": "pyvenv.cfg",
    "venv/bin/tool": "#!",
    "artifact": "artifact",
}
"""What may be read of the workspace below, each with the row of the page that it is."""

_IMPORTED: Final = (
    *("sitecustomize.py", "usercustomize.py", "site.py", "json.py", "msgspec.py", "psutil.py"),
    *("trio/__init__.py", "agentctl_supervisor/__init__.py", "agentctl_child/__init__.py"),
    *("agentctl_protocol.py", "_posixsubprocess.so", "encodings/__init__.py", "a.pth"),
)
_OBEYED: Final = (".bashrc", ".envrc", "CLAUDE.md", "AGENTS.md", ".mcp.json", ".npmrc", ".netrc")


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    with installed() as installation:
        yield installation


@pytest.fixture(
    params=["root", pytest.param("user", marks=needs(Capability.ORDINARY_PYTHON))],
)
def caller(request: pytest.FixtureRequest) -> Iterator[Sandboxed]:
    wanted = request.getfixturevalue("installation") if request.param == "user" else None
    with sandboxed(wanted) as caller:
        yield caller


@needs(Capability.ROOT, Capability.STRACE, Capability.PID_NAMESPACE)
def test_what_is_opened_in_a_workspace_is_a_closed_list(caller: Sandboxed, tmp_path: Path) -> None:
    """Nothing is executed, nothing else is read, and no open(2) can wait or follow by chance."""
    _hostile(caller)

    seen = traced(
        ["/bin/sh", "-c", _commands(caller)],
        tmp_path,
        cwd=caller.workspace,
        environment={
            **caller.home.environment,
            "HOME": str(caller.directory),
            "AGENTCTL_SANDBOX": "strict",
        },
        uid=ORDINARY_UID if caller.ordinary else None,
    )

    assert set(re.findall(r"^exit (\d+ .*)", seen.output, re.MULTILINE)) == set(), seen.output
    assert seen.output.count("exit ok") == len(_COMMANDS) + 2, seen.output
    assert not (caller.directory / "executed").exists()
    assert not [path for path in seen.executed if _below(caller, path) is not None]
    found = [(name, opened) for name, opened in _opened(caller, seen) if opened.reads]
    files = {name for name, opened in found if not opened.lists}
    assert {_READ.get(name, f"{name} is in no row") for name in files} == _rows()
    assert not [(name, opened) for name, opened in found if not _cannot_wait(opened)]


def _cannot_wait(opened: Opened) -> bool:
    return {"O_NONBLOCK", "O_CLOEXEC"} <= opened.flags


def _opened(caller: Sandboxed, seen: Trace) -> Iterator[tuple[str, Opened]]:
    for opened in seen.opened:
        name = _below(caller, opened.path)
        if name is not None:
            yield name, opened


def _below(caller: Sandboxed, path: str) -> str | None:
    """*path* relative to a place that runs can write to, if it lies there."""
    state = re.escape(str(caller.home.root))
    for place in (
        re.escape(str(caller.workspace)),
        re.escape(str(caller.directory / "shared")),
        rf"{state}/runs/[^/]+/(?:workspace|home|tmp)",
    ):
        if found := re.search(rf"{place}(?:/(.*))?$", path):
            return found[1] or "."
    return None


def _rows() -> set[str]:
    """The first words of the rows of the page."""
    section = _PAGE.read_text().partition(f"{_SECTION}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)`", section, re.MULTILINE))


_COMMANDS: Final = (
    "run -q --name one -- /bin/true",
    "run -q --name two agent.py:main",
    "run -q --name three --rw ../shared -- venv/bin/tool",
    "run -q --name four --sandbox standard --unprotect agentctl.toml -- /bin/true",
    "run -q -d --name five -- /bin/sleep 600",
    "ps",
    "show five",
    "logs five",
    "events five",
    "stop five",
    "wait five",
    "resume five -d --name six",
    "kill six",
    "rerun one",
    "export -f ../two.tar two",
    "run --explain -- /bin/true",
    "doctor",
    "prune --keep 0",
)


def _commands(caller: Sandboxed) -> str:
    command = shlex.join(caller.home.argv())
    # From the home directory, a run gets a fresh workspace.
    places = (*((".", words) for words in _COMMANDS), ("..", "run -q -- /usr/bin/touch made"))
    return "\n".join(
        f"cd {place}; {command} {words} && echo exit ok || echo exit $? {words}"
        for place, words in (*places, (".", "prune --keep 0"))
    )


def _hostile(caller: Sandboxed) -> None:
    """A workspace in which each file that is read is there, beside all that must not be."""
    executed = caller.directory / "executed"
    workspace = caller.workspace
    for name in _IMPORTED:
        text = f"import os; open({str(executed)!r}, 'w')\n"
        caller.make(f"workspace/{name}", text)
    caller.make("workspace/agentctl.toml", "time = '60s'\n")
    caller.make("workspace/pyproject.toml", "[project]\n")
    caller.make("workspace/.git/HEAD", "ref: refs/heads/main\n")
    caller.make("workspace/.git/config", "[include]\n\tpath = ../shared.cfg\n")
    caller.make("workspace/.git/config.worktree", "[core]\n\thooksPath = .githooks\n")
    caller.make("workspace/.git/hooks/pre-commit", f"#!/bin/sh\ntouch {executed}\n", 0o755)
    caller.make("workspace/.git/modules/m/HEAD", "")
    caller.make("workspace/.git/modules/m/config", "[core]\n\tworktree = ../../../m\n")
    caller.make("workspace/.git/worktrees/w/commondir", "")
    caller.make("workspace/.git/worktrees/w/gitdir", "../../../w/.git\n")
    caller.make("shared/.git", "gitdir: /no/such\n")
    caller.make("workspace/shared.cfg", "[core]\n\tfsmonitor = ./monitor\n")
    caller.make("workspace/monitor", f"#!/bin/sh\ntouch {executed}\n", 0o755)
    caller.make("workspace/venv/pyvenv.cfg", "home = /usr/bin\n")
    caller.make("workspace/venv/lib/python3.11/site-packages/a.pth", "import trap\n")
    caller.make("workspace/venv/bin/tool", "#!/bin/sh\ntrue\n", 0o755)
    caller.make("workspace/artifact", "text")
    caller.make(
        "workspace/agent.py",
        "from agentctl_child import run\n\n\ndef main():\n"
        "    for name in ('artifact', 'fifo', 'loop', 'sparse', 'socket'):\n"
        "        run.artifact(name)\n",
    )
    caller.make("shared/file", "text")
    for directory in (workspace, workspace / ".git/hooks", caller.directory / "shared"):
        os.mkfifo(directory / "fifo")
        (directory / "loop").symlink_to("loop")
        with (directory / "sparse").open("wb") as file:
            file.truncate(1 << 40)
        with socket.socket(socket.AF_UNIX) as listener:
            os.chdir(directory)  # its path may be too long for an address
            listener.bind("socket")
            os.chdir("/")
    for name in _OBEYED:
        os.mkfifo(workspace / name)
    deep = workspace
    for _ in range(20):
        deep /= "d" * 100
        deep.mkdir()
    for path in (caller.directory, *caller.directory.rglob("*")):
        if not stat.S_ISLNK(path.lstat().st_mode):
            os.chown(path, caller.uid, caller.uid)
