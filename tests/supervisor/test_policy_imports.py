"""No run may write where agentctl imports from: what it leaves there is executed outside."""

import os
import site
import subprocess
import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentctl_protocol.spec import SpecError
from agentctl_protocol.vocabulary import Sandbox
from agentctl_supervisor.policy.contents import UnreadableError
from agentctl_supervisor.policy.import_path import PACKAGES, ImportPath, import_path
from agentctl_supervisor.policy.own_files import OwnFile
from agentctl_supervisor.policy.reserved import reserved
from agentctl_testkit_policy import ALONE, policy_in, read_only_in


def _imports(
    workspace: Path, entry: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """The environment of an agentctl that has *entry* from *variable*."""
    if variable == "PYTHONPATH":
        return {"PYTHONPATH": f"/usr/lib/python3:{os.path.join(workspace, entry)}"}
    monkeypatch.setattr(sys, "path", [*sys.path, os.path.join(workspace, entry)])
    return {}


@pytest.mark.parametrize("level", [Sandbox.STRICT, Sandbox.STANDARD])
@pytest.mark.parametrize("entry", ["", "not-there", "not/there", "to-elsewhere", "{w}"])
@pytest.mark.parametrize("variable", ["PYTHONPATH", "sys.path"])
def test_where_agentctl_imports_from_is_no_runs_workspace(
    workspace: Path, entry: str, variable: str, level: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ``sitecustomize`` there would be executed by the next ``agentctl``, outside."""
    (workspace / "to-elsewhere").symlink_to("/usr")
    environ = _imports(workspace, entry.format(w=workspace), variable, monkeypatch)
    policy = policy_in(workspace, environ=environ, sandbox=level)
    assert policy.workspace is not None
    assert policy.workspace.private
    explicit: tuple[dict[str, Any], ...] = ({"workspace": "."}, {"rw": (str(workspace),)})
    for option in explicit:
        with pytest.raises(SpecError, match="agentctl"):
            policy_in(workspace, environ=environ, sandbox=level, **option)


@pytest.mark.parametrize("entry", ["src", "a/link", "src/not-there", "src/file.zip"])
@pytest.mark.parametrize("variable", ["PYTHONPATH", "sys.path"])
def test_what_agentctl_imports_from_within_a_workspace_is_read_only(
    workspace: Path, entry: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory, or whatever decides what it is; also when ``--rw`` names one around it."""
    (workspace / "src").mkdir()
    (workspace / "src/file.zip").touch()
    (workspace / "a").mkdir()
    (workspace / "a/link").symlink_to("/usr/lib")
    environ = _imports(workspace, entry, variable, monkeypatch)
    wanted = {"a/link": "a", "src/file.zip": "src/file.zip"}.get(entry, "src")
    assert read_only_in(policy_in(workspace, environ=environ), workspace) == {wanted}
    above = policy_in(workspace / "a", environ=environ, rw=(str(workspace),))
    if variable == "sys.path":
        assert wanted in read_only_in(above, workspace)
        with pytest.raises(SpecError, match="agentctl itself imports"):
            policy_in(workspace, environ=environ, rw=(wanted,))
    with pytest.raises(SpecError, match="cannot be kept"):
        policy_in(workspace, environ=environ, sandbox=Sandbox.STANDARD)


def test_a_runs_own_python_path_is_its_own(workspace: Path) -> None:
    """``--env PYTHONPATH=...`` is for the run alone."""
    (workspace / "src").mkdir()
    policy = policy_in(workspace, env={"PYTHONPATH": "src"})
    assert policy.workspace is not None
    assert not policy.workspace.private
    assert read_only_in(policy, workspace) == set()


def _why_not(path: Path, python_path: str) -> str:
    found = reserved((), import_path({"PYTHONPATH": python_path}, "/"), (), ALONE)
    return found.why_not(str(path)).why


@pytest.mark.parametrize(
    "name",
    [
        *("platform", "argparse.py", "msgspec", "trio/_core", "sitecustomize", "__pycache__"),
        *("usercustomize.py", "psutil.cpython-311-x86_64-linux-gnu.so", "late.pth", "pytest"),
    ],
)
def test_beneath_an_imported_directory_a_modules_name_is_not_for_a_run(
    workspace: Path, name: str
) -> None:
    """An empty ``platform/`` is nothing until a run puts an ``__init__.py`` into it."""
    assert name.split("/", maxsplit=1)[0].partition(".")[0] in _why_not(
        workspace / name, str(workspace)
    )


@pytest.mark.parametrize("name", ["project", "my-agent", "data.txt", "projects/platform"])
def test_beneath_an_imported_directory_other_names_are_fine(workspace: Path, name: str) -> None:
    """Whoever has all projects on PYTHONPATH can run agents in each of them."""
    assert _why_not(workspace / name, str(workspace)) == ""


def test_a_cache_of_bytecode_is_not_for_a_run_at_all(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In it lies the code of every module, by the path of its source (PYTHONPYCACHEPREFIX)."""
    monkeypatch.setattr(sys, "pycache_prefix", str(workspace))
    assert "PYTHONPYCACHEPREFIX" in _why_not(workspace, "")
    assert "PYTHONPYCACHEPREFIX" in _why_not(workspace / "usr/lib/python3.11", "")


def test_what_site_would_add_is_reserved_before_it_is_there(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves out what a ``.pth`` file names, and a user's own packages, until they are there."""
    packages = workspace / "site-packages"
    packages.mkdir()
    told = "# a comment\n\nimport sys\n../later  \n/gone/elsewhere\n"
    (packages / "project.pth").write_text(told)
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(packages)])
    assert "project.pth" in _why_not(workspace, "")
    assert _why_not(workspace / "project", "") == ""
    monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
    users = workspace / "home/lib/python3/site-packages"
    users.parent.mkdir(parents=True)
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(users))
    assert "packages of a user" in _why_not(users.parent, "")
    users.mkdir()
    assert "packages of a user" in _why_not(users, "")
    assert "packages of a user" in _why_not(users / "trio", "")


def test_what_python_will_obey_and_we_cannot_read_refuses_every_run(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ``.pth`` file that is none, or too long: it could name any directory."""
    packages = workspace / "site-packages"
    packages.mkdir()
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(packages)])
    os.mkfifo(packages / "waits.pth")
    with pytest.raises(UnreadableError, match=r"waits\.pth"):
        _why_not(workspace, "")
    (packages / "waits.pth").unlink()
    with (packages / "long.pth").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(UnreadableError, match="longer"):
        _why_not(workspace, "")


@pytest.mark.parametrize("target", ["w/later", "w/later/on", "w/loop", "w/file/on"])
def test_a_link_that_leads_into_a_workspace_to_nothing_is_followed(
    workspace: Path, target: str
) -> None:
    """The run would make what is at its end.  Also a link that leads to itself, and a file."""
    (workspace / "loop").symlink_to("loop")
    (workspace / "file").touch()
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "link").symlink_to(f"../{target}")
    decides = workspace / "file" if "file" in target else workspace
    assert "agentctl itself imports" in _why_not(decides, f"{outside}/link")
    assert "agentctl itself imports" in _why_not(outside, f"{outside}/link")


def test_a_mark_of_a_development_install_is_no_directory(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Setuptools puts a name on the path that only its own importer knows."""
    mark = "__editable__.project-1.0.finder.__path_hook__"

    def hook(entry: str) -> Any:
        if entry == mark:
            return object()
        raise ImportError

    monkeypatch.chdir(workspace)
    monkeypatch.setattr(sys, "path", [*sys.path, mark])
    assert _why_not(workspace, "") != ""
    monkeypatch.setattr(sys, "path_hooks", [*sys.path_hooks, hook])
    assert _why_not(workspace, "") == ""


def test_it_is_said_what_is_the_matter_and_what_can_be_done(workspace: Path) -> None:
    """PYTHONPATH alone would leave a person looking for it."""
    assert _why_not(workspace, str(workspace)) == "where agentctl itself imports from (PYTHONPATH)"
    assert _why_not(workspace, f"{workspace}/src") == (
        f"where a run could make {workspace}/src: what agentctl itself imports (PYTHONPATH)"
    )
    (workspace / "l").symlink_to("/usr")
    assert _why_not(workspace, f"{workspace}/l") == (
        f"where a run could change {workspace}/l, "
        "a link to what agentctl itself imports (PYTHONPATH)"
    )
    assert _why_not(workspace / "code", str(workspace)) == (
        "beneath code, and so is called a module that agentctl may import (PYTHONPATH)"
    )


@pytest.mark.parametrize("entry", ["", "src", "./src"])
def test_an_entry_that_is_not_absolute_is_everywhere(workspace: Path, entry: str) -> None:
    """The next agentctl may be started in any directory that a run wrote to, or beneath it."""
    environ = {"PYTHONPATH": f"/usr/lib:{entry}"}
    refusal = reserved((), import_path(environ, "/"), (), ALONE).why_not(str(workspace))
    assert refusal.why.startswith("where agentctl, started there, would import from (PYTHONPATH")
    assert "absolute" in refusal.hint
    policy = policy_in(workspace, environ=environ)
    assert policy.workspace is not None
    assert policy.workspace.private
    with pytest.raises(SpecError, match="started there"):
        policy_in(workspace, environ=environ, rw=(str(workspace),))


def test_a_directory_of_packages_that_is_not_absolute_is_everywhere(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONUSERBASE and PYTHONPYCACHEPREFIX can be relative, too; the first is from here."""
    monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
    for variable in ("PYTHONUSERBASE", "PYTHONPYCACHEPREFIX"):
        anywhere = import_path({variable: "base"}, "/").anywhere
        assert anywhere is not None
        assert variable in anywhere.why
    monkeypatch.setattr(site, "getusersitepackages", lambda: "base/lib")
    path = import_path({}, str(workspace))
    assert os.fsencode(workspace / "base/lib") in [searched.path for searched in path.searched]


@pytest.mark.parametrize("target", ["w/argparse", "w/later", "w/one.py"])
def test_a_link_called_like_a_module_is_followed(workspace: Path, target: str) -> None:
    """Whoever keeps such files elsewhere has a link to them in the directory that is searched."""
    (workspace / "argparse").mkdir()
    (workspace / "one.py").touch()
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "argparse").symlink_to(f"../{target}")
    (outside / "project").symlink_to("../w/project")
    found = reserved((), import_path({"PYTHONPATH": str(outside)}, "/"), (), ALONE)
    decides = workspace.parent / target if target != "w/later" else workspace
    assert "agentctl itself imports" in found.why_not(str(decides)).why
    assert found.why_not(str(workspace / "project")).why == ""
    if target == "w/argparse":
        assert "agentctl itself imports" in found.why_not(str(decides / "sub")).why


def test_dots_after_a_link_are_read_as_python_reads_them(workspace: Path) -> None:
    """It takes ``link/..`` away; the kernel goes to the parent of where the link leads."""
    (workspace / "l").symlink_to("/usr/lib")
    (workspace / "src").mkdir()
    assert _why_not(workspace / "src", f"{workspace}/l/../src") != ""


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
    assert "a link to agentctl's own" in _why_not(workspace / "bin", "")
    assert _why_not(workspace / "agentctl", "") == "agentctl's own, or its interpreter's"
    assert read_only_in(policy_in(workspace), workspace) == {"bin", "agentctl"}


def test_what_an_importer_found_elsewhere_is_reserved(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A development install need not be on the search path."""
    for name in ("hooked", "single"):
        spec = ModuleSpec(name, None, origin=str(workspace / f"{name}.py"))
        spec.has_location = True
        module = ModuleType(name)
        module.__spec__ = spec
        monkeypatch.setitem(sys.modules, name, module)
        if name == "hooked":
            spec.submodule_search_locations = [str(workspace / "hooked")]
            (workspace / "hooked").mkdir()
            assert "hooked is there" in _why_not(workspace / "hooked/sub", "")
            assert _why_not(workspace, "") == ""
    assert "single is there" in _why_not(workspace, "")


def test_what_is_odd_on_the_path_or_among_the_modules_does_no_harm(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that embeds us may have anything there, and Python starts all the same."""

    class Lazy(ModuleType):
        def __getattribute__(self, name: str) -> Any:
            raise ImportError("it would be loaded now")

    mark = ModuleType("spread")
    mark.__spec__ = ModuleSpec("spread", None, is_package=True)
    mark.__spec__.submodule_search_locations = ["__editable__.spread.finder.__path_hook__"]
    packages = workspace / "site-packages"
    packages.mkdir()
    (packages / "zero.pth").write_bytes(b"\0\0\n")
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(packages)])
    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    monkeypatch.setitem(sys.modules, "spread", mark)
    monkeypatch.setattr(sys, "path", [*sys.path, None])
    monkeypatch.delattr(sys, "argv")
    monkeypatch.chdir(workspace)
    assert _why_not(workspace, "") == ""
    policy = policy_in(workspace)
    assert policy.workspace is not None
    assert not policy.workspace.private


def test_a_way_to_make_a_directory_is_one_that_can_be_pasted(workspace: Path) -> None:
    """Not for what is a file, nor where the name is too long to be said."""
    for name, hint in (
        ("with space", f"mkdir -p '{workspace}/with space'; or unset PYTHONPATH"),
        ("code.zip", "unset PYTHONPATH"),
        ("l" * 200, "unset PYTHONPATH"),
    ):
        found = reserved((), import_path({"PYTHONPATH": f"{workspace}/{name}"}, "/"), (), ALONE)
        assert found.why_not(str(workspace)).hint.startswith(hint)


def test_what_is_imported_on_request_counts_before_it_is_there(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a ``.pth`` file, or for the category of a warning; it may have failed for us."""
    packages = workspace / "site-packages"
    packages.mkdir()
    (packages / "x.pth").write_text("import os; from measure import start; start()\n")
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(packages)])
    monkeypatch.setattr(sys, "warnoptions", ["error", "ignore::DeprecationWarning", "ignore::m.W"])
    for name in ("measure", "m"):
        assert f"beneath {name}" in _why_not(workspace / name, str(workspace))
    assert _why_not(workspace / "other", str(workspace)) == ""


@pytest.mark.parametrize("path", ["/usr", "/usr/bin", "/usr/lib/python3", "/usr/local/bin"])
def test_the_systems_interpreter_is_ours_and_applications_beside_it_are_not(path: str) -> None:
    """Images keep those in /usr/src, with an environment of their own in it."""
    found = reserved((OwnFile("/usr", ""), OwnFile("/usr/local", "")), ImportPath(), (), ALONE)
    assert found.why_not(path).why == "agentctl's own, or its interpreter's"
    assert found.why_not("/usr/src/app").why == ""
    assert found.why_not("/usr/local/src/app").why == ""
    own = reserved((OwnFile("/usr/share/doc", ""),), ImportPath(), (), ALONE)
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


def test_another_process_is_told_what_its_caller_imports(workspace: Path) -> None:
    """The supervisor of a detached run is isolated: its own search path says nothing."""
    told = import_path({"PYTHONPATH": str(workspace)}, "/")
    assert isinstance(told, ImportPath)
    own = policy_in(workspace)
    assert own.workspace is not None
    assert not own.workspace.private
    as_told = policy_in(workspace, path=told)
    assert as_told.workspace is not None
    assert as_told.workspace.private


def test_all_that_agentctl_imports_is_known() -> None:
    """What is not in the list could be put beside what is imported."""
    told = subprocess.run(
        [sys.executable, "-P", "-c", _IMPORTS_ALL], check=True, capture_output=True, text=True
    ).stdout.split()
    path = ImportPath()
    assert set(PACKAGES) <= {*told, "attrs"}
    assert [name for name in told if not path.has(name)] == []


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


def test_what_a_module_is_linked_to_is_no_runs_to_write(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a development install in strict mode lays it out: a link for each file, deep down."""
    (workspace / "src").mkdir()
    (workspace / "src" / "part.py").touch()
    package = workspace.parent / "installed" / "linked_package" / "inner"
    package.mkdir(parents=True)
    (package / "part.py").symlink_to(workspace / "src" / "part.py")
    module = ModuleType("linked_package.inner.part")
    module.__spec__ = spec_from_file_location(module.__name__, package / "part.py")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found = reserved((), import_path({}, "/"), (), ALONE)
    assert (
        "linked_package.inner.part is a link to it"
        in found.why_not(str(workspace / "src" / "part.py")).why
    )
    assert str(workspace / "src" / "part.py") in found.around([str(workspace)])


def test_what_tells_python_where_its_packages_are_is_no_runs_to_make(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``pyvenv.cfg`` beside the interpreter as it was called, or above it, link or not."""
    (workspace / "bin").mkdir()
    (workspace / "bin" / "python3").symlink_to("/usr/bin/python3")
    monkeypatch.setattr(sys, "executable", str(workspace / "bin" / "python3"))
    assert "could make" in _why_not(workspace, "")
    assert "pyvenv.cfg" in _why_not(workspace, "")
    assert _why_not(workspace / "src", "") == ""
