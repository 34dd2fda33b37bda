"""What is built, what it needs, and what it lets a user import."""

import ast
import importlib
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from agentctl_testkit import REPOSITORY

PACKAGES = {
    "agentctl_protocol": REPOSITORY / "protocol" / "agentctl_protocol",
    "agentctl_child": REPOSITORY / "runner_child" / "agentctl_child",
    "agentctl_supervisor": REPOSITORY / "supervisor" / "agentctl_supervisor",
}
PROJECTS = {
    "agentctl-supervisor": REPOSITORY / "pyproject.toml",
    "agentctl-child": REPOSITORY / "runner_child" / "pyproject.toml",
    "agentctl-protocol": REPOSITORY / "protocol" / "pyproject.toml",
}


def project(path: Path) -> dict[str, Any]:
    """The ``[project]`` table of a pyproject file."""
    table: dict[str, Any] = tomllib.loads(path.read_text())["project"]
    return table


def test_the_three_distributions_are_one_version() -> None:
    """Their names are ours, their versions equal, and the child asks for exactly that protocol."""
    tables = {name: project(path) for name, path in PROJECTS.items()}

    assert {name: table["name"] for name, table in tables.items()} == {n: n for n in PROJECTS}
    [version] = {table["version"] for table in tables.values()}
    assert f"agentctl-protocol=={version}" in tables["agentctl-child"]["dependencies"]
    assert len({table["requires-python"] for table in tables.values()}) == 1


def test_the_child_brings_msgspec_and_nothing_else() -> None:
    """An agent's virtualenv gets no event loop and no process library from us."""
    [msgspec] = project(PROJECTS["agentctl-protocol"])["dependencies"]
    [_protocol, needed] = project(PROJECTS["agentctl-child"])["dependencies"]

    assert msgspec.startswith("msgspec")
    assert needed == msgspec
    assert msgspec in project(PROJECTS["agentctl-supervisor"])["dependencies"]


def modules(package: str) -> list[str]:
    """The dotted names of all modules of *package*."""
    root = PACKAGES[package]
    return sorted(
        ".".join((package, *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        for path in root.rglob("*.py")
        if path.name != "__main__.py"
    )


@pytest.mark.parametrize(
    ("package", "blocked"),
    [
        ("agentctl_protocol", ("trio", "psutil", "agentctl_child", "agentctl_supervisor")),
        ("agentctl_child", ("trio", "psutil", "agentctl_supervisor")),
    ],
)
def test_the_agents_side_imports_where_trio_and_psutil_are_not(
    package: str, blocked: tuple[str, ...]
) -> None:
    """Every module of it, in a fresh isolated interpreter."""
    program = (
        "import importlib, sys\n"
        f"for name in {blocked!r}: sys.modules[name] = None\n"
        f"for name in {modules(package)!r}: importlib.import_module(name)\n"
    )

    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, check=False, text=True
    )

    assert done.returncode == 0, done.stderr


def test_the_supervisor_does_not_import_the_child() -> None:
    """The command line's whole import graph is free of the child's package."""
    program = (
        "import sys\n"
        "sys.modules['agentctl_child'] = None\n"
        "import agentctl_supervisor.cli, agentctl_supervisor.supervisor\n"
    )

    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, check=False, text=True
    )

    assert done.returncode == 0, done.stderr


def test_the_wheel_holds_three_packages_one_command_and_nothing_else(wheel: Path) -> None:
    """Every source file is in it, with the marker for type checkers; no test and no folder is."""
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    sources = [
        str(path.relative_to(root.parent))
        for root in PACKAGES.values()
        for path in root.rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    ]

    [command] = [name for name in names if ".data/scripts/" in name]
    assert command.endswith("/agentctl")
    assert sorted(names) == sorted([*sources, command])
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)


@pytest.mark.parametrize("package", list(PACKAGES))
def test_what_a_package_offers_is_sorted_documented_and_there(package: str) -> None:
    """Each name in ``__all__`` exists, has a docstring, and no other public name is bound."""
    module = importlib.import_module(package)
    offered: list[str] = list(module.__all__)

    assert offered == sorted(offered, key=str.lower) or offered == sorted(offered)
    for name in offered:
        value = getattr(module, name)
        assert isinstance(value, str | int) or value.__doc__, name


@pytest.mark.parametrize("package", ["agentctl_child", "agentctl_supervisor"])
def test_what_a_package_offers_is_in_the_readme(package: str) -> None:
    """A user can find every public name without reading the source."""
    text = (REPOSITORY / "README.md").read_text()

    missing = [
        name
        for name in importlib.import_module(package).__all__
        if not re.search(rf"\b{name}\b", text)
    ]

    assert missing == []


@pytest.mark.parametrize("package", list(PACKAGES))
def test_no_module_is_too_long(package: str) -> None:
    """A module that needs more than 500 lines has two ideas."""
    long = {
        path.name: lines
        for path in PACKAGES[package].rglob("*.py")
        if (lines := path.read_text().count("\n")) > 500
    }

    assert long == {}


def test_each_top_folder_is_a_source_root_with_one_package() -> None:
    """No folder is itself a package, so that no import name is a common word."""
    for package, path in PACKAGES.items():
        root = path.parent
        assert not (root / "__init__.py").exists()
        assert [entry.parent.name for entry in root.glob("*/__init__.py")] == [package]


def test_the_tour_of_the_files_is_what_the_files_say() -> None:
    """``docs/architecture.md`` has each module's first line, and none of a file that is gone."""
    made = runpy.run_path(str(REPOSITORY / "docs" / "make_tour.py"))
    text = made["ARCHITECTURE"].read_text()

    assert text == made["with_tour"](text), "run: python docs/make_tour.py"


def test_every_test_file_has_a_name_of_its_own() -> None:
    """Two files of one name would be one module to some tools."""
    names = [path.name for path in (REPOSITORY / "tests").rglob("test_*.py")]

    assert sorted(names) == sorted(set(names))


def test_every_test_states_its_promise() -> None:
    """Each test function has a docstring."""
    silent = [
        f"{path.name}: {node.name}"
        for path in (REPOSITORY / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and ast.get_docstring(node) is None
    ]

    assert silent == []
