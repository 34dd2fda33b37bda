"""The command obeys nothing of its environment before its first line, wherever it lies.

Each hostile thing is first shown to do harm where Python is started as usual.
"""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from agentctl_testkit import REPOSITORY
from agentctl_testkit.ordinary import lay_out

_VERSION: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
_COMMANDS: Final = (
    ("--version",),
    ("run", "-q", "--name", "one", "--", "true"),
    ("run", "-q", "-d", "--name", "two", "--", "sleep", "600"),
    ("run", "--explain", "--", "true"),
    ("rerun", "-q", "one"),
    ("stop", "two"),
    ("doctor",),
)


class House:
    """A virtual environment with agentctl in it, beside a directory full of traps.

    What springs a trap leaves its name in ``sprung``.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.venv = directory / "venv"
        lay_out(self.venv, sys.executable)
        self.packages = self.venv / f"lib/python{_VERSION}/site-packages"
        self.cwd = directory / "cwd"
        self.cwd.mkdir()
        self.log = directory / "sprung"
        for name in ("python", "python3", "sh", "readlink", "env", "agentctl"):
            self.trap(self.cwd / name)
            (self.cwd / name).chmod(0o755)
        for name in ("os", "encodings/__init__", "sitecustomize", "msgspec", "agentctl_supervisor"):
            self.trap(self.cwd / f"{name}.py")
            self.trap(self.cwd / f"lib/python{_VERSION}/{name}.py")
        (self.cwd / f"lib/python{_VERSION}/lib-dynload").mkdir()
        (self.cwd / "pyvenv.cfg").write_text(f"home = {self.cwd}\n")

    def trap(self, path: Path) -> Path:
        """Put one at *path*."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".py":
            text = f"with open({str(self.log)!r}, 'a') as log: log.write({str(path)!r})\n"
        else:
            text = f"#!/bin/sh\necho {path} >> {self.log}\n"
        path.write_text(text)
        return path

    def sprung(self) -> str:
        """Which traps were, since it was last asked."""
        found = self.log.read_text() if self.log.exists() else ""
        self.log.unlink(missing_ok=True)
        return found

    def run(
        self,
        *argv: str | Path,
        cwd: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run *argv* with few variables, and these, to the end."""
        usual = {
            "AGENTCTL_HOME": str(self.directory / "state"),
            "AGENTCTL_SANDBOX": "basic",
            "HOME": str(self.directory),
            "PATH": os.defpath,
        }
        return subprocess.run(
            argv,
            cwd=cwd or self.cwd,
            env={**usual, **(variables or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    @property
    def command(self) -> Path:
        """The command."""
        return self.venv / "bin/agentctl"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> House:
    return House(tmp_path_factory.mktemp("house"))


@pytest.fixture
def house(shared: House) -> Iterator[House]:
    yield shared
    for name in ("x.pth", "project.pth", "sitecustomize.py"):
        (shared.packages / name).unlink(missing_ok=True)
    shutil.rmtree(shared.directory / "state", ignore_errors=True)
    shared.sprung()


@dataclass(frozen=True)
class _Hostile:
    """``variables`` of the environment, and ``files`` in site-packages; ``{cwd}`` stands for that.

    ``harmless``: it may do nothing to Python as usual, either.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    harmless: bool = False


_HOSTILE: Final = {
    "a .pth file": _Hostile(
        files={"x.pth": "import sys; exec(open('{cwd}/sitecustomize.py').read())"}
    ),
    # Harmless where the system's own Python has one, as Debian's: that comes first.
    "sitecustomize": _Hostile(
        files={"sitecustomize.py": "exec(open('{cwd}/os.py').read())"}, harmless=True
    ),
    "PYTHONPATH": _Hostile({"PYTHONPATH": "{cwd}"}),
    "PYTHONPATH, relative": _Hostile({"PYTHONPATH": ":."}),
    "PYTHONWARNINGS": _Hostile(
        {"PYTHONWARNINGS": "error::msgspec.Trap", "PYTHONPATH": "{cwd}"},
    ),
    "PYTHONHOME": _Hostile({"PYTHONHOME": "{cwd}"}),
    "PYTHONPLATLIBDIR": _Hostile({"PYTHONPLATLIBDIR": "{cwd}"}),
    "PYTHONINSPECT and PYTHONSTARTUP": _Hostile(
        {"PYTHONINSPECT": "1", "PYTHONSTARTUP": "{cwd}/os.py"}, harmless=True
    ),
    "places of Python's": _Hostile(
        {"PYTHONUSERBASE": "{cwd}", "PYTHONPYCACHEPREFIX": "{cwd}/cache", "VIRTUAL_ENV": "{cwd}"},
        harmless=True,
    ),
    "PYTHONEXECUTABLE and the like": _Hostile(
        {"__PYVENV_LAUNCHER__": "{cwd}/python", "PYTHONEXECUTABLE": "{cwd}/python"}, harmless=True
    ),
    "what shells obey": _Hostile(
        {
            "ENV": "{cwd}/sh",
            "BASH_ENV": "{cwd}/sh",
            "IFS": "/",
            "CDPATH": "{cwd}",
            "BASHOPTS": "execfail",
            "PYTHONPATH": "{cwd}",
            **{
                f"BASH_FUNC_{name}%%": "() { . {cwd}/sh; }"
                for name in ("[", "command", "echo", "exec", "unset", "readlink", "exit")
            },
        },
    ),
}


@pytest.mark.parametrize("name", _HOSTILE)
def test_nothing_of_the_environment_is_executed(name: str, house: House) -> None:
    """Neither by the command nor by any process that it starts for itself."""
    hostile = _HOSTILE[name]
    here = str(house.cwd)
    for file, text in hostile.files.items():
        (house.packages / file).write_text(text.replace("{cwd}", here))
    variables = {key: value.replace("{cwd}", here) for key, value in hostile.variables.items()}

    python = (house.venv / "bin/python", "-P", "-m", "agentctl_supervisor", "--version")
    usual = house.run(*python, variables=variables)
    assert house.sprung() or usual.returncode or hostile.harmless

    for arguments in _COMMANDS:
        done = house.run(house.command, *arguments, variables=variables)
        assert house.sprung() == "", arguments
        assert done.returncode == 0 or arguments[0] == "doctor", (arguments, done)
        assert "Traceback" not in done.stderr


def test_no_shell_obeys_functions_of_the_environment(house: House, tmp_path: Path) -> None:
    """Whichever is ``/bin/sh``: bash has them even then."""
    variables = {
        key: value.replace("{cwd}", str(house.cwd))
        for key, value in _HOSTILE["what shells obey"].variables.items()
    }
    link = tmp_path / "agentctl"
    link.symlink_to(house.command)
    for shell in _shells(tmp_path):
        for command in (house.command, link):
            done = house.run(*shell, command, "--version", variables=variables)
            assert (done.returncode, done.stderr) == (0, ""), shell
    assert house.sprung() == ""


_ODD: Final = {
    "a space": b"ven v",
    "a newline": b"ven\nv",
    "a newline at the end": b"venv\n",
    "a byte that is no text": b"ven\xffv",
    "what shells expand": b"$(x)'\"`*\\c",
    "a dash": b"-venv",
    "a colon": b"ven:v",
}


@pytest.mark.parametrize("name", _ODD)
def test_it_works_wherever_it_lies(name: str, house: House) -> None:
    """By its path, a link and a relative path; and its keepers and agents with it."""
    odd = Path(os.fsdecode(os.path.join(os.fsencode(house.directory), _ODD[name])))
    house.venv.rename(odd)
    try:
        link = house.cwd / "link"
        link.symlink_to(odd / "bin/agentctl")
        (house.cwd / "agent.py").write_text("def main(): return 42\n")
        relative = os.path.join(os.pardir, odd.name, "bin/agentctl")
        for command in (odd / "bin/agentctl", link, relative):
            done = house.run(command, "run", "-q", "agent.py:main")
            assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")
        done = house.run("./agentctl", "--version", cwd=odd / "bin")
        assert done.returncode == 0, done
        assert house.sprung() == ""
    finally:
        (house.cwd / "link").unlink()
        odd.rename(house.venv)


def _shells(directory: Path) -> Iterator[tuple[str, ...]]:
    """Ways to start a script by each shell that is here and may be somebody's ``/bin/sh``."""
    yield ()
    for shell in filter(None, map(shutil.which, ("dash", "bash", "busybox"))):
        link = directory / os.path.basename(shell) / "sh"
        link.parent.mkdir()
        link.symlink_to(shell)
        yield (str(link),)


def test_it_works_however_it_is_called(house: House, tmp_path: Path) -> None:
    """By links, chains of them, linked directories and PATH, whatever PATH is besides."""
    chain = tmp_path / "chain"
    chain.symlink_to("first")
    (tmp_path / "first").symlink_to(house.command)
    (tmp_path / "bin").symlink_to(house.venv / "bin")
    (tmp_path / "-v").symlink_to(house.venv)
    for shell in _shells(tmp_path):
        for command in (
            *(house.command, chain, tmp_path / "bin/agentctl", tmp_path / "-v/bin/agentctl"),
        ):
            for path in ("", ".", str(house.cwd)):
                done = house.run(*shell, command, "--version", variables={"PATH": path})
                assert (done.returncode, done.stderr) == (0, ""), (shell, command, path)
        done = house.run(*shell, "./-v/bin/agentctl", "--version", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    for path in (f"{house.cwd / 'nothing'}:{house.venv / 'bin'}", "."):
        done = house.run(
            *("/usr/bin/env", "agentctl", "--version"),
            cwd=house.venv / "bin",
            variables={"PATH": path},
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert house.sprung() == ""


def test_it_is_called_agentctl(house: House) -> None:
    """By ``pgrep agentctl``, as a script that the kernel itself gives to Python."""
    with subprocess.Popen(
        [house.command, "run", "-q", "-i", "--sandbox", "basic", "--", "cat"],
        env={"AGENTCTL_HOME": str(house.directory / "state"), "PATH": os.defpath},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"up\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"up\n"
        assert Path(f"/proc/{process.pid}/comm").read_text() == "agentctl\n"
        process.stdin.close()


def test_it_works_where_the_directory_is_gone(house: House, tmp_path: Path) -> None:
    """A shell may stand in a directory that somebody removed."""
    gone = tmp_path / "gone"
    gone.mkdir()
    done = house.run("/bin/sh", "-c", f'rmdir "{gone}"; exec "{house.command}" --version', cwd=gone)
    assert done.returncode == 0, done


def test_by_a_name_without_a_directory_it_refuses(house: House) -> None:
    """``sh agentctl``: the ``./python`` of wherever that is would be the wrong one."""
    done = house.run("/bin/sh", "agentctl", "--version", cwd=house.venv / "bin")
    assert done.returncode == 127
    assert "call it by a path" in done.stderr


def test_its_whole_environment_is_no_runs_to_write(house: House) -> None:
    """Without ``site``, Python until 3.13 takes its prefix for that of what it was made of."""
    for name in ("", "lib", "bin", "include", f"lib/python{_VERSION}"):
        path = house.venv / name
        done = house.run(house.command, "run", "--sandbox", "standard", "--rw", path, "--", "true")
        assert done.returncode in (2, 125), done
        assert "agentctl" in done.stderr


def test_a_project_that_is_installed_beside_it_is_a_workspace(house: House, tmp_path: Path) -> None:
    """Nothing of a dev install or of PYTHONPATH is imported, so a run may change it."""
    project = tmp_path / "project"
    project.mkdir()
    if os.geteuid() == 0:
        for directory in (project, *project.parents):
            directory.chmod(directory.stat().st_mode | stat.S_IXOTH)
    (house.packages / "project.pth").write_text(f"{project}\nimport sys\n")
    for variables in ({}, {"PYTHONPATH": f":{project}:src"}):
        done = house.run(
            *(house.command, "run", "-q", "--sandbox", "standard", "--workspace", "."),
            *("--", "touch", "made"),
            cwd=project,
            variables=variables,
        )
        assert (done.returncode, done.stderr) == (0, "")
        (project / "made").unlink()


_AGENT: Final = """
import sys, project_beside
def main():
    exit
    # Debian's own Python has a sitecustomize, which comes first.
    return [project_beside.VALUE, sys.prefix, sys.from_pth, "sitecustomize" in sys.modules]
def pool():
    import multiprocessing
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(project_beside.value)
"""


def test_an_agent_of_its_interpreter_has_the_packages_of_the_environment(
    house: House, tmp_path: Path
) -> None:
    """What ``.pth`` files and ``sitecustomize`` do is done in the agent, and nowhere before."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "project_beside.py").write_text("VALUE = 42\ndef value(): return VALUE\n")
    (house.packages / "project.pth").write_text(f"{project}\nimport sys; sys.from_pth = 1\n")
    (house.packages / "sitecustomize.py").touch()
    (tmp_path / "agent.py").write_text(_AGENT)
    for level in ("basic", "standard"):
        if os.geteuid() == 0 and level == "standard":
            for directory in (project, *project.parents):
                directory.chmod(directory.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
        done = house.run(
            house.command, "run", "-q", "--sandbox", level, "agent.py:main", cwd=tmp_path
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f'[42,"{house.venv}",1,true]\n'
    done = house.run(
        house.command, "run", "-q", "--sandbox", "basic", "agent.py:pool", cwd=tmp_path
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")


@pytest.mark.parametrize(
    ("line", "code"),
    [("raise SystemExit(3)", 1), ("import time; time.sleep(600)", 124)],
    ids=["ends Python", "hangs"],
)
def test_code_of_the_environment_that_fails_is_the_agents_failure(
    line: str, code: int, house: House, tmp_path: Path
) -> None:
    """It ends that run, and can be stopped; a program is not concerned."""
    (house.packages / "x.pth").write_text(f"import sys; exec({line!r})\n")
    (tmp_path / "agent.py").write_text("def main(): return 42\n")
    done = house.run(house.command, "run", "-q", "--time", "2s", "agent.py:main", cwd=tmp_path)
    assert done.returncode == code, done
    assert house.run(house.command, "run", "-q", "--", "true").returncode == 0


def test_every_python_of_ours_is_started_in_one_place() -> None:
    """Elsewhere the interpreter is looked at, and not executed."""
    source = REPOSITORY / "supervisor/agentctl_supervisor"
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if "sys.executable" in path.read_text()
    }
    assert found == {
        "processes/isolated_python.py",
        "doctor/facts.py",
        "policy/search_path.py",
    }
