"""What a file that runs can write may ask for: nothing that opens what was closed."""

from pathlib import Path
from typing import Any

import pytest

from agentctl_protocol.vocabulary import Network, Sandbox
from agentctl_supervisor.config.settings import KEYS
from agentctl_supervisor.config.trust import FREE_GRACE_S, Project, Wish, is_trusted, wishes

_HERE = Project("/p", "/p/sub", "/home/ada")

_FREE: dict[str, list[tuple[Any, dict[str, Any]]]] = {
    "sandbox": [
        (Sandbox.STRICT, {}),
        (Sandbox.STANDARD, {"sandbox": Sandbox.BASIC}),
        (Sandbox.BASIC, {"sandbox": Sandbox.BASIC}),
    ],
    "net": [
        (Network.NONE, {}),
        (Network.NONE, {"net": Network.HOST}),
        (Network.HOST, {"net": Network.HOST}),
        (Network.HOST, {"sandbox": Sandbox.BASIC}),
    ],
    "workspace": [("/p", {}), ("/p/src", {}), ("/data", {"workspace": "/data"})],
    "ro": [
        (("/p/data", "/p"), {}),
        (("/p/sub/.env",), {}),
        (("/data/x",), {"ro": ("/data",)}),
        (("/data/x",), {"rw": ("/data",)}),
        (("/w/.x",), {"workspace": "/w"}),
    ],
    "rw": [(("/data/x",), {"rw": ("/data",)})],
    "unprotect": [((".git/hooks",), {"unprotect": (".git/hooks",)})],
    "env": [
        (("CI=1", "X=/x", "PATH=/usr/bin:/p/bin:bin:", "PYTHONPATH=/p/src"), {}),
        (("KEY",), {"env": ("KEY",)}),
        (("PATH=/x",), {"env": ("PATH=/x",)}),
    ],
    "time": [(5.0, {}), (None, {}), (5.0, {"time": 6.0}), (6.0, {"time": 6.0})],
    "output": [(1 << 20, {}), (1 << 30, {}), (1 << 40, {"output": None})],
    "grace": [(0.0, {}), (FREE_GRACE_S, {}), (90.0, {"grace": 100.0})],
    "term-grace": [(FREE_GRACE_S, {})],
    "calls": [(5, {}), (5, {"calls": 6})],
    "tokens": [(5, {}), (5, {"tokens": 5})],
    "calls-of": [(("shell=3",), {}), (("shell=9",), {"calls-of": ("shell=3",)})],
    "allow": [(("read_*",), {}), (("read_*",), {"allow": ("read_*", "shell")})],
    "deny": [(("shell",), {}), (("shell",), {"deny": ("rm",)})],
    "approve": [(("shell",), {}), (("shell",), {"deny": ("shell",)})],
    "stop-when": [("max_messages(5)", {}), ("timeout(1)", {"stop-when": "timeout(1)"})],
}
_REFUSED: dict[str, list[tuple[Any, dict[str, Any]]]] = {
    "sandbox": [
        (Sandbox.STANDARD, {}),
        (Sandbox.BASIC, {}),
        (Sandbox.NONE, {"sandbox": Sandbox.BASIC}),
    ],
    "net": [
        (Network.HOST, {}),
        (Network.HOST, {"net": Network.NONE}),
        (Network.HOST, {"net": Network.NONE, "sandbox": Sandbox.BASIC}),
    ],
    "workspace": [
        ("/data", {}),
        ("/", {}),
        ("/pp", {}),
        ("/p/.git", {}),
        ("/p/a/.git/hooks", {}),
    ],
    "ro": [(("/etc/shadow",), {}), (("/p/.env",), {}), (("/",), {}), (("/pp",), {})],
    "rw": [(("/data",), {}), (("/p",), {}), (("/p/sub",), {}), (("/data",), {"ro": ("/data",)})],
    "unprotect": [((".git/hooks",), {}), ((".git",), {"unprotect": (".git/hooks",)})],
    "env": [
        (("API_KEY",), {}),
        (("API_KEY",), {"env": ("API_KEY=x",)}),
        # A run is shown what is in its search paths.
        (("PYTHONPATH=/home/ada/.ssh",), {}),
        (("PATH=/usr/bin:/home/ada/.aws",), {}),
        (("PATH=/p/.git",), {}),
        (("PATH=/usr/../home/ada/.aws",), {}),
    ],
    "time": [(7.0, {"time": 6.0}), (None, {"time": 6.0})],
    "output": [(None, {}), ((1 << 30) + 1, {}), (2, {"output": 1})],
    "grace": [(61.0, {}), (101.0, {"grace": 100.0})],
    "term-grace": [(1e8, {})],
    "calls": [(7, {"calls": 6}), (None, {"calls": 6})],
    "tokens": [(7, {"tokens": 6})],
    "allow": [(("read_*", "shell"), {"allow": ("read_*",)})],
    "stop-when": [("timeout(1000000)", {"stop-when": "timeout(1)"})],
}
_NEVER_MORE = {"calls-of", "deny", "approve"}
"""Of several the strictest holds, so that one more entry opens nothing."""


def _cases(of: dict[str, list[tuple[Any, dict[str, Any]]]]) -> list[Any]:
    return [pytest.param(key, *case, id=f"{key}-{case[0]}") for key in of for case in of[key]]


def test_every_key_is_thought_of() -> None:
    """A new one is refused, until both tables here have it."""
    assert set(_FREE) == set(KEYS)
    assert set(_REFUSED) == set(KEYS) - _NEVER_MORE
    assert list(wishes({"new": 1}, {}, _HERE)) == [Wish("new", 1)]


@pytest.mark.parametrize(("key", "value", "others"), _cases(_FREE))
def test_what_makes_a_run_stricter_needs_no_word(
    key: str, value: Any, others: dict[str, Any]
) -> None:
    """Compared with what would hold without the project's file."""
    assert list(wishes({key: value}, others, _HERE)) == []


@pytest.mark.parametrize(("key", "value", "others"), _cases(_REFUSED))
def test_what_opens_a_run_is_found(key: str, value: Any, others: dict[str, Any]) -> None:
    """Each such value of a list, and not the others."""
    wanted = value[-1] if isinstance(value, tuple) else value
    assert list(wishes({key: value}, others, _HERE)) == [Wish(key, wanted)]


def test_a_link_in_the_project_leads_out_of_it(tmp_path: Path) -> None:
    """A run can make links."""
    (tmp_path / "link").symlink_to("/etc")
    its = Project(str(tmp_path), str(tmp_path), "/home/ada")
    link = str(tmp_path / "link")
    assert list(wishes({"ro": (link,)}, {}, its)) == [Wish("ro", link)]
    assert list(wishes({"workspace": link}, {}, its)) == [Wish("workspace", link)]


@pytest.mark.parametrize("directory", ["/home/ada", "/home", "/"])
def test_a_home_directory_is_no_project(directory: str) -> None:
    """There a run has a fresh workspace, so nothing of the directory is its own."""
    its = Project(directory, directory, "/home/ada")
    path = f"{directory.rstrip('/')}/documents"
    assert list(wishes({"ro": (path,)}, {}, its)) == [Wish("ro", path)]
    assert list(wishes({"workspace": path}, {}, its)) == [Wish("workspace", path)]


def test_trust_is_for_one_directory(tmp_path: Path) -> None:
    """Not for what a run could make below; by the directory that a link leads to."""
    (tmp_path / "p/sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to("p")
    assert is_trusted(str(tmp_path / "p"), [str(tmp_path / "p/")])
    assert is_trusted(str(tmp_path / "p"), [str(tmp_path / "link")])
    assert not is_trusted(str(tmp_path / "p/sub"), [str(tmp_path / "p")])
    assert not is_trusted(str(tmp_path), [str(tmp_path / "p")])
    assert not is_trusted(str(tmp_path / "p"), [])
