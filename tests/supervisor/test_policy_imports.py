"""No run may write where this process imports from: what it leaves there is executed outside."""

import os
import site
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentctl_protocol.spec import SpecError
from agentctl_protocol.vocabulary import Sandbox
from agentctl_supervisor.policy import own_files, search_path
from agentctl_supervisor.policy.never_writable import Reserved, reserved
from agentctl_supervisor.policy.own_files import OwnFile
from agentctl_supervisor.policy.unsuitable_directories import places
from agentctl_supervisor.processes.isolated_python import PACKAGES
from agentctl_testkit.policy import ALONE, policy_in, read_only_in

Search = Callable[[Path | str], None]


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Search:
    """Puts a directory on this process's path."""

    def search(entry: Path | str) -> None:
        monkeypatch.setattr(sys, "path", [*sys.path, os.fspath(entry)])

    return search


def _reserved() -> Reserved:
    return reserved((), (), ALONE)


def _why_not(path: Path) -> str:
    return _reserved().why_not(str(path)).why


@pytest.mark.parametrize("level", [Sandbox.STRICT, Sandbox.STANDARD])
@pytest.mark.parametrize("entry", ["", "not-there", "not/there", "to-elsewhere", "{w}"])
def test_where_agentctl_imports_from_is_no_runs_workspace(
    workspace: Path, entry: str, level: Sandbox, search: Search
) -> None:
    """A module there would be executed by the next one, outside."""
    (workspace / "to-elsewhere").symlink_to("/usr")
    search(workspace / entry.format(w=workspace))
    policy = policy_in(workspace, sandbox=level)
    assert policy.workspace is not None
    assert policy.workspace.private
    explicit: tuple[dict[str, Any], ...] = ({"workspace": "."}, {"rw": (str(workspace),)})
    for option in explicit:
        with pytest.raises(SpecError, match="agentctl"):
            policy_in(workspace, sandbox=level, **option)


@pytest.mark.parametrize("entry", ["src", "a/link", "src/not-there", "src/file.zip"])
def test_what_agentctl_imports_from_within_a_workspace_is_read_only(
    workspace: Path, entry: str, search: Search
) -> None:
    """The directory, or whatever decides what it is; also when ``--rw`` names one around it."""
    (workspace / "src").mkdir()
    (workspace / "src/file.zip").touch()
    (workspace / "a").mkdir()
    (workspace / "a/link").symlink_to("/usr/lib")
    search(workspace / entry)
    wanted = {"a/link": "a", "src/file.zip": "src/file.zip"}.get(entry, "src")
    assert read_only_in(policy_in(workspace), workspace) == {wanted}
    above = policy_in(workspace / "a", rw=(str(workspace),))
    assert wanted in read_only_in(above, workspace)
    with pytest.raises(SpecError, match="agentctl itself imports"):
        policy_in(workspace, rw=(wanted,))
    with pytest.raises(SpecError, match="cannot be kept"):
        policy_in(workspace, sandbox=Sandbox.STANDARD)


@pytest.mark.parametrize("given", ["environ", "env"])
def test_a_python_path_that_this_process_does_not_heed_is_no_matter(
    workspace: Path, given: str
) -> None:
    """The command is isolated, and ``--env PYTHONPATH=...`` is for the run alone."""
    (workspace / "src").mkdir()
    policy = policy_in(workspace, **{given: {"PYTHONPATH": ":src"}})
    assert policy.workspace is not None
    assert not policy.workspace.private
    assert read_only_in(policy, workspace) == set()


@pytest.mark.parametrize(
    "name",
    [
        *("platform", "argparse.py", "msgspec", "trio/_core", "sitecustomize", "__pycache__"),
        *("usercustomize.py", "psutil.cpython-311-x86_64-linux-gnu.so", "pytest"),
    ],
)
def test_beneath_an_imported_directory_a_modules_name_is_not_for_a_run(
    workspace: Path, name: str, search: Search
) -> None:
    """An empty ``platform/`` is nothing until a run puts an ``__init__.py`` into it."""
    search(workspace)
    assert name.split("/", maxsplit=1)[0].partition(".")[0] in _why_not(workspace / name)


@pytest.mark.parametrize("name", ["project", "my-agent", "data.txt", "projects/platform"])
def test_beneath_an_imported_directory_other_names_are_fine(
    workspace: Path, name: str, search: Search
) -> None:
    """A program that embeds us can run agents in a directory beside it."""
    search(workspace)
    assert _why_not(workspace / name) == ""


@pytest.mark.parametrize("target", ["w/later", "w/later/on", "w/loop", "w/file/on"])
def test_a_link_that_leads_into_a_workspace_to_nothing_is_followed(
    workspace: Path, target: str, search: Search
) -> None:
    """The run would make what is at its end.  Also a link that leads to itself, and a file."""
    (workspace / "loop").symlink_to("loop")
    (workspace / "file").touch()
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "link").symlink_to(f"../{target}")
    decides = workspace / "file" if "file" in target else workspace
    search(outside / "link")
    assert "agentctl itself imports" in _why_not(decides)
    assert "agentctl itself imports" in _why_not(outside)


def test_a_mark_of_a_development_install_is_no_directory(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, search: Search
) -> None:
    """Setuptools puts a name on the path that only its own importer knows."""
    monkeypatch.chdir(workspace)
    search("__editable__.project-1.0.finder.__path_hook__")
    assert _why_not(workspace) == ""
    (workspace / "src").mkdir()
    search("src")
    assert "imports from" in _why_not(workspace / "src")


def test_it_is_said_what_is_the_matter_and_what_can_be_done(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path is named, and where the program's own directory is on it, how that is left out."""
    (workspace / "l").symlink_to("/usr")
    usual = list(sys.path)
    for entry, path, why in (
        ("", "", "where agentctl itself imports from"),
        ("/src", "", f"where a run could make {workspace}/src: what agentctl itself imports"),
        (
            "/l",
            "",
            f"where a run could change {workspace}/l, a link to what agentctl itself imports",
        ),
        ("", "/code", "beneath code, and so is called a module that agentctl may import"),
    ):
        monkeypatch.setattr(sys, "path", [*usual, f"{workspace}{entry}"])
        refusal = _reserved().why_not(f"{workspace}{path}")
        assert refusal.why == f"{why} (sys.path)"
        assert "pipx install" in refusal.hint
    monkeypatch.setattr(sys, "path", [str(workspace), *usual])
    assert "python -P" in _reserved().why_not(str(workspace)).hint


@pytest.mark.parametrize("target", ["w/argparse", "w/later", "w/one.py"])
def test_a_link_called_like_a_module_is_followed(
    workspace: Path, target: str, search: Search
) -> None:
    """Whoever keeps such files elsewhere has a link to them in the directory that is searched."""
    (workspace / "argparse").mkdir()
    (workspace / "one.py").touch()
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "argparse").symlink_to(f"../{target}")
    (outside / "project").symlink_to("../w/project")
    search(outside)
    decides = workspace.parent / target if target != "w/later" else workspace
    assert "agentctl" in _why_not(decides)
    assert _why_not(workspace / "project") == ""
    if target == "w/argparse":
        assert "agentctl's own" in _why_not(decides / "sub")


def test_what_starts_agentctl_is_ours_by_every_link(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment may have been made by a ``python3`` that is a link in a project."""
    (workspace / "bin").mkdir()
    (workspace / "bin/python3").symlink_to(sys.executable)
    (workspace / "agentctl").touch()
    other = workspace.parent / "python"
    other.symlink_to(workspace / "bin/python3")
    monkeypatch.setattr(sys, "executable", str(other))
    monkeypatch.setattr(sys, "argv", [str(workspace / "agentctl")])
    assert "a link to agentctl's own" in _why_not(workspace / "bin")
    assert _why_not(workspace / "agentctl") == "agentctl's own, or its interpreter's"
    assert read_only_in(policy_in(workspace), workspace) == {"bin", "agentctl"}


def test_what_is_odd_on_the_path_or_among_the_modules_does_no_harm(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that embeds us may have anything there, and Python starts all the same."""

    class Lazy(ModuleType):
        def __getattribute__(self, name: str) -> Any:
            raise ImportError("it would be loaded now")

    packages = workspace.parent / "site-packages"
    packages.mkdir()
    (packages / "zero.pth").write_bytes(b"\0\0\n")
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(packages)])
    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    monkeypatch.setattr(sys, "path", [*sys.path, None])
    monkeypatch.delattr(sys, "argv")
    monkeypatch.chdir(workspace)
    assert _why_not(workspace) == ""
    policy = policy_in(workspace)
    assert policy.workspace is not None
    assert not policy.workspace.private


def test_a_way_to_make_a_directory_is_one_that_can_be_pasted(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for what is a file, nor where the name is too long to be said."""
    usual = list(sys.path)
    for name, hint in (
        ("with space", f"mkdir -p '{workspace}/with space'; or install"),
        ("code.zip", "install"),
        ("l" * 200, "install"),
    ):
        monkeypatch.setattr(sys, "path", [*usual, f"{workspace}/{name}"])
        assert _reserved().why_not(str(workspace)).hint.startswith(hint)


def test_agents_see_what_is_installed_for_them_elsewhere(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ``.pth`` files name, which an agent of our interpreter imports; no code in them runs."""
    packages = workspace.parent / "site-packages"
    packages.mkdir()
    (workspace / "src").mkdir()
    told = (
        f"\ufeff# a comment\n\nimport sys; sys.ran = 1\n{workspace}/src  \n../w\n/gone/elsewhere\n"
    )
    (packages / "project.pth").write_text(told)
    os.mkfifo(workspace.parent / "waits.pth")
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(packages), str(workspace.parent)])
    there = places({"HOME": "/nowhere"})
    shown = {file.path for file in own_files.own_files(there) if not file.kept}
    assert {str(packages), f"{workspace}/src", str(workspace)} <= shown
    assert not [path for path in shown if "gone" in path]
    assert not hasattr(sys, "ran")
    assert _why_not(workspace) == ""


@pytest.mark.parametrize("path", ["/usr", "/usr/bin", "/usr/lib/python3", "/usr/local/bin"])
def test_the_systems_interpreter_is_ours_and_applications_beside_it_are_not(path: str) -> None:
    """Images keep those in /usr/src, with an environment of their own in it."""
    found = reserved((OwnFile("/usr", ""), OwnFile("/usr/local", "")), (), ALONE)
    assert found.why_not(path).why == "agentctl's own, or its interpreter's"
    assert found.why_not("/usr/src/app").why == ""
    assert found.why_not("/usr/local/src/app").why == ""
    own = reserved((OwnFile("/usr/share/doc", ""),), (), ALONE)
    assert own.why_not("/usr/share/doc/x").why == "agentctl's own, or its interpreter's"


@pytest.mark.parametrize("there", ["nothing", "directory", "a link", "the file a link"])
def test_settings_and_state_are_not_for_a_run_to_make(workspace: Path, there: str) -> None:
    """By their links, too, as of whoever keeps settings in a repository."""
    home = workspace.parent / "home"
    home.mkdir()
    config, repository = home / ".config", workspace / "config"
    repository.mkdir()
    match there:
        case "nothing":
            config.symlink_to(repository)
        case "directory":
            config.symlink_to(repository)
            (repository / "agentctl").mkdir()
        case "a link":
            config.symlink_to(workspace / "l")
            (workspace / "l").symlink_to("/usr")
        case "the file a link":
            (config / "agentctl").mkdir(parents=True)
            (config / "agentctl/config.toml").symlink_to(repository / "agentctl.toml")
            (repository / "agentctl.toml").touch()
    environ = {"HOME": str(home)}
    if there == "a link":
        with pytest.raises(SpecError, match="agentctl's settings or state"):
            policy_in(workspace, environ=environ, workspace=str(workspace))
        return
    policy = policy_in(workspace, environ=environ)
    assert policy.workspace is not None
    assert policy.workspace.path == str(workspace)
    (piece,) = [
        piece
        for piece in policy.view.pieces
        if piece.path.startswith(str(repository)) and not piece.is_pin
    ]
    assert not piece.writable
    wanted = {"directory": "config/agentctl", "the file a link": "config/agentctl.toml"}
    assert piece.path == str(workspace / wanted.get(there, "config"))


def test_all_that_agentctl_imports_is_known() -> None:
    """What is not in the list could be put beside what is imported."""
    told = subprocess.run(
        [sys.executable, "-P", "-c", _IMPORTS_ALL], check=True, capture_output=True, text=True
    ).stdout.split()
    assert set(PACKAGES) <= {*told, "attrs"}
    assert [name for name in told if not search_path.is_importable(name)] == []


_IMPORTS_ALL = """
import sys
import importlib, pkgutil
tried = set()
sys.addaudithook(lambda event, given: tried.add(given[0]) if event == "import" else None)
for package in ("agentctl_protocol", "agentctl_child", "agentctl_supervisor"):
    found = importlib.import_module(package)
    for module in pkgutil.walk_packages(found.__path__, f"{package}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
import asyncio, trio
print(*sorted({name.partition(".")[0] for name in tried}))
"""


def test_what_tells_python_where_its_packages_are_is_no_runs_to_make(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``pyvenv.cfg`` beside the interpreter as it was called, or above it, link or not."""
    (workspace / "bin").mkdir()
    (workspace / "bin" / "python3").symlink_to("/usr/bin/python3")
    monkeypatch.setattr(sys, "executable", str(workspace / "bin" / "python3"))
    assert "could make" in _why_not(workspace)
    assert "pyvenv.cfg" in _why_not(workspace)
    assert _why_not(workspace / "src") == ""
