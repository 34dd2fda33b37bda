"""What is built, what it needs, and what it lets a user import."""

import ast
import email
import importlib
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from agentctl_protocol import __version__
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


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.ZipFile]:
    """The wheels of this tree, by the names of their distributions."""
    directory = tmp_path_factory.mktemp("wheels")
    options = ("-q", "--no-deps", "--no-build-isolation", "--no-index")
    folders = [path.parent for path in PROJECTS.values()]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "-w", directory, *folders], check=True
    )
    built = {path.name.partition("-")[0]: zipfile.ZipFile(path) for path in directory.glob("*.whl")}
    return {name: built[name.replace("-", "_")] for name in PROJECTS}


def metadata(wheel: zipfile.ZipFile) -> Message:
    """What a wheel says of itself."""
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return email.message_from_bytes(wheel.read(name))


def test_the_three_distributions_are_one_version(wheels: dict[str, zipfile.ZipFile]) -> None:
    """Their names are ours, they need one Python, and the child asks for exactly that protocol."""
    told = {name: metadata(wheel) for name, wheel in wheels.items()}

    assert {name: one["Name"] for name, one in told.items()} == {name: name for name in PROJECTS}
    assert {one["Version"] for one in told.values()} == {__version__}
    needed = told["agentctl-child"].get_all("Requires-Dist", [])
    assert f"agentctl-protocol=={__version__}" in needed
    assert len({project(path)["requires-python"] for path in PROJECTS.values()}) == 1


def test_the_version_stands_in_one_file() -> None:
    """No project file and no other module has it; the command and the documents say the same."""
    with_it = {
        str(path.relative_to(REPOSITORY))
        for pattern in ("*/agentctl_*/**/*.py", "pyproject.toml", "*/pyproject.toml", "*/*.py")
        for path in REPOSITORY.glob(pattern)
        if f'{__version__}"' in path.read_text()
    }
    assert with_it == {"protocol/agentctl_protocol/__init__.py"}

    asked = [sys.executable, "-P", "-m", "agentctl_supervisor", "--version"]
    said = subprocess.run(asked, capture_output=True, check=True, text=True).stdout
    assert said == f"agentctl {__version__}\n"
    newest = re.search(r"^## \[(.+?)\]", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == __version__


def test_every_distribution_has_the_licence(wheels: dict[str, zipfile.ZipFile]) -> None:
    """Each wheel says Apache-2.0 and holds its text, which is the same in all of them."""
    for wheel in wheels.values():
        assert metadata(wheel)["License-Expression"] == "Apache-2.0"
        [name] = [name for name in wheel.namelist() if name.endswith("/licenses/LICENSE")]
        assert wheel.read(name) == (REPOSITORY / "LICENSE").read_bytes()


def test_the_source_distribution_has_all_that_a_contributor_reads(tmp_path: Path) -> None:
    """The project's pages, the documents, the tests and the scripts that run them."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=True)
    [packed] = tmp_path.iterdir()
    with tarfile.open(packed) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    pages = {path.name for path in REPOSITORY.glob("*.md")}
    assert {*pages, "LICENSE", "docs/README.md", "tests/conftest.py", ".ci/run"} <= names


def test_the_child_brings_msgspec_and_nothing_else(wheels: dict[str, zipfile.ZipFile]) -> None:
    """An agent's virtualenv gets no event loop and no process library from us."""
    told = {name: metadata(wheel).get_all("Requires-Dist", []) for name, wheel in wheels.items()}
    [msgspec] = told["agentctl-protocol"]

    assert msgspec.startswith("msgspec")
    assert told["agentctl-child"] == [f"agentctl-protocol=={__version__}", msgspec]
    assert msgspec in told["agentctl-supervisor"]


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
def test_what_a_package_offers_is_in_the_guide(package: str) -> None:
    """A user can find every public name without reading the source."""
    text = "".join(page.read_text() for page in (REPOSITORY / "docs" / "guide").glob("*.md"))

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


def test_the_inner_loop_is_told_about_files_that_are_there() -> None:
    """No file that ``tests/conftest.py`` calls slow or fast has been moved away."""
    tests = REPOSITORY / "tests"
    made = runpy.run_path(str(tests / "conftest.py"))

    assert [name for name in (*made["SLOW"], *made["FAST"]) if not (tests / name).exists()] == []


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
