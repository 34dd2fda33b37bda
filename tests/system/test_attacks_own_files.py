"""A workspace that has agentctl itself in it: interpreter, packages, state, settings, the code.

All that is kept out of a run's hands though it lies in the directory that the run was given:
who changes it decides what the next supervisor, or the next run, does.
"""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from agentctl_testkit import ORDINARY_UID, as_nobody
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.ordinary import Installation, installed

_PROGRAM: Final = "own_files_attacker.py"

pytestmark = needs(Capability.ROOT, Capability.ORDINARY_PYTHON, Capability.PID_NAMESPACE)


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    with installed() as installation:
        yield installation


@pytest.fixture(params=["root", "user"])
def caller(request: pytest.FixtureRequest, installation: Installation) -> dict[str, Any]:
    """Arguments for subprocess; all of the installation is the caller's."""
    uid = 0 if request.param == "root" else ORDINARY_UID
    for directory, _, names in os.walk(installation.directory):
        for path in (directory, *(os.path.join(directory, name) for name in names)):
            os.chown(path, uid, uid, follow_symlinks=False)
    return as_nobody() if uid else {}


def _run(
    installation: Installation, caller: dict[str, Any], *argv: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        argv,
        cwd=installation.directory,
        env={
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "AGENTCTL_HOME": str(installation.directory / "state"),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        **caller,
    )


def _agentctl(
    installation: Installation, caller: dict[str, Any], *arguments: str
) -> "subprocess.CompletedProcess[str]":
    return _run(installation, caller, installation.agentctl, *arguments)


def _targets(installation: Installation) -> list[str]:
    """What has to be kept; the state directory is there, and has a run in it."""
    directory = installation.directory
    (site,) = directory.glob("venv/lib/python*/site-packages")
    (directory / "agentctl.toml").touch()
    return [
        str(path)
        for path in (
            directory / "venv/pyvenv.cfg",
            directory / "venv/bin/activate",
            site / "agentctl_child/__init__.py",
            site / "agentctl_protocol/spec.py",
            site / "msgspec/__init__.py",
            next(directory.glob("state/runs/*/spec")),
            directory / "agentctl.toml",
            installation.agents / _PROGRAM,
        )
    ]


def _attempts(text: str, installation: Installation) -> dict[str, str]:
    """Without those that are the run's right: to make files where nothing of ours is."""
    project = {f"{installation.directory}/agentctl.toml", f"{installation.agents}/{_PROGRAM}"}
    said: dict[str, str] = json.loads(text.splitlines()[-1])
    theirs = {f"create beside {path}" for path in project}
    return {what: how for what, how in said.items() if what not in theirs}


def test_what_is_agentctls_is_kept_from_a_run_that_has_it_in_its_workspace(
    installation: Installation, caller: dict[str, Any]
) -> None:
    """Each attempt works outside; inside none does, and nothing is left on the host."""
    directory = installation.directory
    first = _agentctl(
        *(installation, caller, "run", "-q", "--sandbox", "basic"),
        *("--", "/bin/true"),
    )
    assert first.returncode == 0, first.stderr
    targets = _targets(installation)
    program = str(installation.agents / _PROGRAM)
    command = (installation.python, program, json.dumps(targets))
    before = {str(path) for path in directory.rglob("*")}

    outside = _attempts(_run(installation, caller, *command).stdout, installation)
    inside = _agentctl(
        *(installation, caller, "run", "-q", "--sandbox", "strict"),
        *("--workspace", str(directory), "--", *command),
    )

    assert {what: how for what, how in outside.items() if how != "done"} == {}
    assert inside.returncode == 0, inside.stderr
    worked = [what for what, how in _attempts(inside.stdout, installation).items() if how == "done"]
    assert worked == []
    left = {str(path) for path in directory.rglob("*")} - before
    assert [path for path in left if "/state/" not in path and "__pycache__" not in path] == []


def test_standard_cannot_keep_it_and_says_so(
    installation: Installation, caller: dict[str, Any]
) -> None:
    """Landlock takes nothing out of a directory that is given: the run is refused, with a hint."""
    refused = _agentctl(
        *(installation, caller, "run", "--sandbox", "standard"),
        *("--workspace", str(installation.directory), "--", "/bin/true"),
    )

    assert refused.returncode in (2, 125)
    assert "cannot be kept from a run" in refused.stderr
    assert "hint: --workspace DIR without it, or --sandbox strict" in refused.stderr


_TELL: Final = 'print("exe" + "cuted")'


@dataclass(frozen=True)
class _Way:
    """How what a run leaves could come to be executed by the next agentctl.

    ``variables``: of every agentctl, ``{project}`` and ``{site}`` standing for directories.
    ``before``: a script that lays it out, in the project; ``$SITE``: where packages are.
    ``mounted``: directories, as in ``variables``, each with another one where it is mounted, too.
    ``where``: where in the project the run starts.  ``options``: it is asked for with.
    ``leave``: a script of the run.
    ``command``: in the project; else the interpreter with ``-m``, which is not isolated.
    """

    variables: tuple[str, ...] = ()
    before: str = "true"
    mounted: tuple[tuple[str, str], ...] = ()
    where: str = "."
    options: tuple[str, ...] = ("--workspace", ".")
    leave: str = f"mkdir -p sitecustomize; echo '{_TELL}' > sitecustomize/__init__.py"
    command: str = ""


_HERE: Final = ("PYTHONPATH=.",)
_NEXT: Final = ("run", "-q", "--sandbox", "basic", "--", "true")
_MODULE: Final = f"mkdir -p {{0}}; echo '{_TELL}' > {{0}}/__init__.py"
_WAYS: Final = {
    "PYTHONPATH": _Way(_HERE),
    "in a .pth file": _Way(before='pwd > "$SITE/way.pth"', leave=_MODULE.format("org")),
    "a link to nothing": _Way(
        ("PYTHONPATH={project}/outside/link",),
        before="mkdir outside inside; ln -s ../inside/later outside/link",
        where="inside",
        leave=_MODULE.format("later/sitecustomize"),
    ),
    "a directory with a module's name": _Way(
        ("PYTHONPATH={project}",),
        before="mkdir argparse",
        where="argparse",
        leave=f"echo '{_TELL}' > __init__.py",
    ),
    "a file with a module's name": _Way(
        ("PYTHONPATH={project}",),
        before="mkdir elsewhere; touch sitecustomize.py",
        where="elsewhere",
        options=("--rw", "../sitecustomize.py"),
        leave=f"echo '{_TELL}' > ../sitecustomize.py",
    ),
    "a link in a directory that is searched": _Way(
        ("PYTHONPATH={project}/lib",),
        before="mkdir lib inside; ln -s ../inside/sitecustomize.py lib/sitecustomize.py",
        where="inside",
        leave=f"echo '{_TELL}' > sitecustomize.py",
    ),
    "a link to the interpreter": _Way(
        before="mkdir -p inside/bin; ln -s $PYTHON inside/bin/python",
        where="inside",
        leave="rm bin/python; printf '#!/bin/sh\necho executed' > bin/python; chmod +x bin/python",
        command="inside/bin/python -P -m agentctl_supervisor",
    ),
    "a link to the command": _Way(
        before="mkdir -p inside/bin; ln -s $AGENTCTL inside/bin/agentctl",
        where="inside",
        leave="rm bin/agentctl; printf '#!/bin/sh\necho executed' > bin/agentctl;"
        "chmod +x bin/agentctl",
        command="inside/bin/agentctl",
    ),
    "settings that are not there yet": _Way(
        ("XDG_CONFIG_HOME={project}/config",),
        before="mkdir config",
        where="config",
        leave="mkdir -p agentctl; echo 'executed = 1' > agentctl/config.toml",
        command="{venv}/bin/agentctl",
    ),
    "another name of a directory that is searched": _Way(
        ("PYTHONPATH={project}/lib",),
        before="mkdir lib again",
        mounted=(("lib", "again"),),
        where="again",
    ),
    "another name of one around it": _Way(
        ("PYTHONPATH={project}/all/lib",),
        before="mkdir -p all/lib again",
        mounted=(("all", "again"),),
        where="again",
        leave=_MODULE.format("lib/sitecustomize"),
    ),
    "another name of a part of it": _Way(
        ("PYTHONPATH={project}/lib",),
        before="mkdir -p lib/argparse again",
        mounted=(("lib/argparse", "again"),),
        where="again",
        leave=f"echo '{_TELL}' > __init__.py",
    ),
    "its other name is in the workspace": _Way(
        ("PYTHONPATH={project}/lib",),
        before="mkdir -p lib inside/again",
        mounted=(("lib", "inside/again"),),
        where="inside",
        leave=_MODULE.format("again/sitecustomize"),
    ),
    "a mount point that is called like a module": _Way(
        ("PYTHONPATH={project}/lib",),
        before="mkdir -p lib/argparse plug",
        mounted=(("plug", "lib/argparse"),),
        where="plug",
        leave=f"echo '{_TELL}' > __init__.py",
    ),
    "a package is mounted in the workspace": _Way(
        before="mkdir -p inside/protocol",
        mounted=(("{site}/agentctl_protocol", "inside/protocol"),),
        where="inside",
        leave=f"test -w protocol/vocabulary.py && echo '{_TELL}' >> protocol/vocabulary.py",
        command="{venv}/bin/agentctl",
    ),
    "a file of a package is mounted in the workspace": _Way(
        before="mkdir inside; touch inside/file",
        mounted=(("{site}/agentctl_protocol/vocabulary.py", "inside/file"),),
        where="inside",
        leave=f"test -w file && echo '{_TELL}' >> file",
        command="{venv}/bin/agentctl",
    ),
    "a package is mounted from the workspace": _Way(
        before="mkdir inside; cp -r $SITE/agentctl_protocol inside/protocol",
        mounted=(("inside/protocol", "{site}/agentctl_protocol"),),
        where="inside",
        leave=f"test -w protocol/vocabulary.py && echo '{_TELL}' >> protocol/vocabulary.py",
        command="{venv}/bin/agentctl",
    ),
    "a mount that covers another": _Way(
        ("PYTHONPATH={project}/a/b/lib",),
        before="mkdir -p src/b/lib other a/b",
        mounted=(("other", "a/b"), ("src", "a")),
        where="src",
        leave=_MODULE.format("b/lib/sitecustomize"),
    ),
    "a link in a package": _Way(
        before="mkdir inside; mv $SITE/agentctl_protocol/vocabulary.py inside/;"
        "ln -s $PWD/inside/vocabulary.py $SITE/agentctl_protocol/",
        where="inside",
        leave=f"test -w vocabulary.py && echo '{_TELL}' >> vocabulary.py",
        command="{venv}/bin/agentctl",
    ),
}


@contextlib.contextmanager
def _mounted(pairs: Iterable[tuple[Path, Path]]) -> Iterator[tuple[str, ...]]:
    """What a command is to begin with, to find itself where each of *pairs* is one."""
    script = "".join(f"mount --bind {directory} {at}; " for directory, at in pairs)
    script += "echo; exec cat"
    with subprocess.Popen(
        ("unshare", "--mount", "sh", "-ec", script), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n"
        yield ("nsenter", "--mount", "--target", str(holder.pid))
        holder.stdin.close()


def _entering(entered: tuple[str, ...], caller: dict[str, Any]) -> tuple[str, ...]:
    """*entered*, which takes root, and then what becomes the caller."""
    if not (entered and caller):
        return entered
    uid, gid = caller["user"], caller["group"]
    return (*entered, "setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--")


@pytest.mark.parametrize("name", _WAYS)
def test_nothing_that_a_run_leaves_is_executed_by_the_next_agentctl(
    installation: Installation, caller: dict[str, Any], name: str
) -> None:
    """Each way works for what leaves it there without a sandbox, and for no run."""
    way = _WAYS[name]
    project = installation.directory / "project"
    project.mkdir()
    if caller:
        os.chown(project, ORDINARY_UID, ORDINARY_UID)
    venv = installation.directory / "venv"
    (packages,) = venv.glob("lib/python*/site-packages")
    vocabulary = packages / "agentctl_protocol/vocabulary.py"
    code = vocabulary.read_bytes()
    known = (
        *(f"SITE={packages}", f"PYTHON={installation.python}"),
        f"AGENTCTL={installation.agentctl}",
    )
    agentctl: tuple[str, ...] = (installation.python, "-P", "-m", "agentctl_supervisor")
    if way.command:
        program, *words = way.command.format(venv=venv).split()
        agentctl = (str(project / program), *words)
    variables = [variable.format(project=project, site=packages) for variable in way.variables]

    entered: tuple[str, ...] = ()

    def there(where: str, variables: Iterable[str], *command: str) -> str:
        before = _entering(entered, caller)
        at = ("env", "--chdir", str(project / where), *variables)
        done = _run(installation, {} if before else caller, *before, *at, *command)
        return done.stdout + done.stderr

    def sh(where: str, script: str) -> None:
        there(where, known, "sh", "-c", script)

    def agentctl_there(*arguments: str) -> str:
        return there(way.where, variables, *agentctl, *arguments)

    names = [part for variable in known for part in ("--env", variable)]
    run = ("run", *names, "--name", "leaves")
    undone = contextlib.ExitStack()
    try:
        sh(".", way.before)
        if way.mounted:
            pairs = [
                (project / one.format(site=packages), project / at.format(site=packages))
                for one, at in way.mounted
            ]
            entered = undone.enter_context(_mounted(pairs))
        for options in ((), way.options):
            agentctl_there(*run, *options, "--", "sh", "-c", way.leave)
        assert "executed" not in agentctl_there(*_NEXT)
        sh(way.where, way.leave)
        assert "executed" in agentctl_there(*_NEXT)
    finally:
        undone.close()
        vocabulary.unlink()
        vocabulary.write_bytes(code)
        (packages / "way.pth").unlink(missing_ok=True)
        shutil.rmtree(project)
