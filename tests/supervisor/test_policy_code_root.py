"""What is shown with a file of code that was named, and what never is for its sake."""

import os
from pathlib import Path
from typing import Any

import pytest

from agentctl_protocol.spawning import Bind
from agentctl_supervisor.policy.code_root import code_root
from agentctl_supervisor.policy.decision import Policy
from agentctl_supervisor.policy.unsuitable_directories import Places
from agentctl_testkit.policy import ALONE, policy_in


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


def _make(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()


def _root(home: Path, file: str, states: tuple[str, ...] = ()) -> str | None:
    """That of *file* in *home*, relative to it."""
    places = Places((str(home),), str(home), states)
    found = code_root(str(home / file), str(home / file), places, ALONE)
    return None if found is None else os.path.relpath(found, home)


@pytest.mark.parametrize(
    ("files", "named", "root"),
    [
        (("other/ag.py", "other/lib.py"), "other/ag.py", "other"),
        (("p/pkg/__init__.py", "p/pkg/sub/__init__.py"), "p/pkg/sub/ag.py", "p/pkg"),
        (("p/pyproject.toml", "p/src/pkg/__init__.py"), "p/src/pkg/ag.py", "p"),
        (("p/package.json", "p/lib/tool.js"), "p/lib/tool.js", "p"),
        (("p/package.json", "p/node_modules/a/package.json"), "p/node_modules/a/bin/a.js", "p"),
        (("package.json", "p/ag.py"), "p/ag.py", "p"),
        (("pyproject.toml", "ag.py"), "ag.py", None),
        (("Downloads/pyproject.toml",), "Downloads/tool.py", None),
        (("Downloads/tool/tool.py",), "Downloads/tool/tool.py", "Downloads/tool"),
        ((".ssh/id", ".ssh/tool.py"), ".ssh/tool.py", None),
        ((".config/app/tool.py",), ".config/app/tool.py", None),
        ((".trees/p/pyproject.toml",), ".trees/p/ag.py", ".trees/p"),
        (("p/pyproject.toml", "p/.venv/bin/tool"), "p/.venv/bin/tool", None),
    ],
    ids=str,
)
def test_the_root_of_a_named_file(
    home: Path, files: tuple[str, ...], named: str, root: str | None
) -> None:
    """Its project, package or directory, and nothing that holds more than code."""
    _make(home, named, *files)
    assert _root(home, named) == root


def test_agentctls_state_is_never_shown_for_code_around_it(home: Path) -> None:
    """The next smaller directory will do."""
    _make(home, "p/pyproject.toml", "p/lib/ag.py", "p/state/x")
    assert _root(home, "p/lib/ag.py", (str(home / "p/state"),)) == "p/lib"
    assert _root(home, "p/ag.py", (str(home / "p/state"),)) is None


def test_directories_that_programs_share_are_no_code(home: Path) -> None:
    """Nor is the system's, which a run sees as far as it should anyway."""
    places = Places((str(home),), str(home), ())
    for file in ("/tmp/x.py", "/srv/x.py", "/x.py", "/etc/ssl/private/x.py", "/root/x.py"):
        assert code_root(file, file, places, ALONE) is None


def _read_only(policy: Policy) -> dict[str, str]:
    return {
        piece.path: piece.why
        for piece in policy.view.pieces
        if isinstance(piece.part, Bind) and not piece.writable
    }


@pytest.fixture
def work(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.mark.parametrize(
    "given",
    [
        {"argv": None, "target": "../other/ag.py:main"},
        {"argv": ("/usr/bin/python3", "../other/ag.py")},
        {"argv": ("../other/ag.py",)},
    ],
    ids=["function", "script", "program"],
)
def test_it_is_shown_read_only(work: Path, given: dict[str, Any]) -> None:
    """For a function and for a script among the arguments."""
    other = work.parent / "other"
    _make(other, "ag.py", "lib.py")
    (other / "ag.py").chmod(0o755)
    found = _read_only(policy_in(work, **given))
    assert "beside" in found[str(other)]


def test_what_lies_in_the_workspace_stays_writable(work: Path) -> None:
    """The file itself is kept; the project around the workspace is not shown for its sake."""
    _make(work.parent, "pyproject.toml", "work/pkg/ag.py", "work/pkg/lib.py")
    found = _read_only(policy_in(work, argv=None, target="pkg/ag.py:main"))
    assert str(work / "pkg/ag.py") in found
    assert str(work / "pkg") not in found
    assert str(work.parent) not in found


def test_a_link_that_a_run_may_have_made_shows_nothing(work: Path) -> None:
    """What it leads to was not named by the caller."""
    secret = work.parent / "secret"
    _make(secret, "ag.py", "key")
    (work / "ag.py").symlink_to(secret / "ag.py")
    found = _read_only(policy_in(work, argv=None, target="ag.py:main"))
    assert not [path for path in found if path.startswith(str(secret))]


def test_another_workspace_sees_the_code_that_it_is_started_beside(work: Path) -> None:
    """`--workspace out ag.py:main`: the file's siblings are here, and here is not the workspace."""
    _make(work, "ag.py", "lib.py", "out/x")
    found = _read_only(policy_in(work, argv=None, target="ag.py:main", workspace="out"))
    assert str(work) in found
