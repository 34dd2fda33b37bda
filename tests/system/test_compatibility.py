"""What people run works at strict, as root and as an ordinary user.

The programs are in ``tests/agents/compat``, and say what they use.  gdb is not among them: to
look at a program's memory it wants to write to /proc, which is read-only.
"""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Final

import pytest

from agentctl_testkit.attacks import AttackRange
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.compat import PROGRAMS, Place, Start, check

_NEEDS: Final = {
    "compile_use.sh": [Capability.BUILD_TOOLS],
    "curl_use.sh": [Capability.CURL],
    "node_use.mjs": [Capability.NODE],
    "npm_use.sh": [Capability.NODE, Capability.NPM],
    "perl_use.pl": [Capability.PERL],
    "sqlite_shell_use.sh": [Capability.SQLITE_SHELL],
    "strace_use.sh": [Capability.STRACE],
    "system_use.sh": [Capability.PROCPS],
    "zip_use.sh": [Capability.ZIP],
}
_PREPARED: Final = {
    *("Use.java", "git_existing_use.sh", "pip_use.sh", "python_use.py", "shims_use.sh"),
}
"""Those that find something: each has a test of its own below."""


_ALONE: Final = [
    pytest.param(path.name, marks=needs(*_NEEDS.get(path.name, ())))
    for path in sorted(PROGRAMS.iterdir())
    if path.is_file() and path.name not in _PREPARED
]


def _command(place: Place, name: str) -> list[str]:
    python = place.caller.interpreter
    interpreter = {".py": python, ".sh": "bash", ".mjs": "node", ".pl": "perl"}[Path(name).suffix]
    # curl needs a server; the others take no notice.
    return [interpreter, place.program(name), *([python] if name == "curl_use.sh" else [])]


@pytest.mark.parametrize("name", _ALONE)
def test_a_program_works(name: str, attack_range: AttackRange) -> None:
    """As it does without a sandbox."""
    check(attack_range, lambda place: Start(_command(place, name)))


# --- Python ---------------------------------------------------------------------


def _copied_prefix(place: Place, prefix: Path) -> Path:
    """An interpreter of its own at *prefix*, as pyenv and uv make them; the program."""
    python = place.caller.interpreter
    stdlib, version = subprocess.run(
        [
            *(python, "-I", "-c"),
            "import sysconfig; print(sysconfig.get_path('stdlib'), sysconfig.get_python_version())",
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.split()
    unused = ("test", "idlelib", "dist-packages", "site-packages", "config-*", "__pycache__")
    shutil.copytree(
        stdlib, prefix / f"lib/python{version}", ignore=shutil.ignore_patterns(*unused, "lib2to3")
    )
    program = prefix / f"bin/python{version}"
    program.parent.mkdir()
    shutil.copyfile(os.path.realpath(python), program)
    program.chmod(0o755)
    (prefix / "bin/python3").symlink_to(program.name)
    place.own(prefix)
    return prefix / "bin/python3"


def _environment(place: Place, directory: Path, python: str | Path) -> Path:
    """A virtual environment of *python* in *directory*; its program."""
    place.outside(python, "-I", "-m", "venv", "--without-pip", directory)
    return directory / "bin/python"


def test_python_works_wherever_it_is_installed(attack_range: AttackRange) -> None:
    """The system's, in virtual environments, beneath a directory that is closed to others."""

    def use(place: Place) -> list[Start]:
        place.directory.chmod(0o700)
        own = _copied_prefix(place, place.directory / "versions/own")
        inside = _environment(place, place.workspace / "venv", own)
        elsewhere = _environment(place, place.directory / "elsewhere", place.caller.interpreter)
        systems = place.outside(
            place.caller.interpreter, "-I", "-c", "import sys;print(sys.prefix)"
        )
        path = {"PATH": f"{elsewhere.parent}:{os.defpath}"}
        program = place.program("python_use.py")
        return [
            Start([place.caller.interpreter, program, systems.strip()]),
            Start([own, program, own.parent.parent]),
            Start([inside, program, inside.parent.parent]),
            Start(["venv/bin/python", program, inside.parent.parent]),
            Start([elsewhere, program, elsewhere.parent.parent]),
            Start(["python", program, elsewhere.parent.parent], {"env": path}),
        ]

    check(attack_range, use)


def test_compiled_packages_of_ours_work(attack_range: AttackRange) -> None:
    """Those that agentctl itself was installed with, by pip, in its own environment."""
    check(
        attack_range,
        lambda place: Start(
            [place.caller.python, place.program("native_use.py"), "msgspec", "psutil", "trio"]
        ),
    )


def test_a_shim_finds_what_it_stands_for(attack_range: AttackRange) -> None:
    """As pyenv's: in ~/.pyenv, on PATH, called by a script that is no Python program."""

    def use(place: Place) -> Start:
        pyenv = place.caller.directory / ".pyenv"
        place.undo.callback(shutil.rmtree, pyenv)
        python = _copied_prefix(place, pyenv / "versions/own")
        (pyenv / "version").write_text("own\n")
        shim = f'#!/bin/sh\nexec "{pyenv}/libexec/pyenv" exec "${{0##*/}}" "$@"\n'
        chosen = "#!/bin/sh\nshift; program=$1; shift; root=${0%/libexec/*}\n"
        chosen += 'exec "$root/versions/$(cat "$root/version")/bin/$program" "$@"\n'
        for name, text in (("shims/python3", shim), ("libexec/pyenv", chosen)):
            path = pyenv / name
            path.parent.mkdir()
            path.write_text(text)
            path.chmod(0o755)
        place.own(pyenv)
        words: list[str | Path] = ["bash", place.program("shims_use.sh"), python.parent.parent]
        return Start(words, {"env": {"PATH": f"{pyenv}/shims:{os.defpath}"}})

    check(attack_range, use)


@needs(Capability.ENSUREPIP)
def test_pip_installs_in_a_run(attack_range: AttackRange) -> None:
    """A wheel that was given, into an environment of the run's own, with its command."""

    def use(place: Place) -> Start:
        wheel = _wheel(place.directory)
        python = place.caller.interpreter
        return Start(["bash", place.program("pip_use.sh"), python, wheel], {"ro": [str(wheel)]})

    check(attack_range, use)


def _wheel(directory: Path) -> Path:
    """A package with a command ``say``."""
    wheel = directory / "sayer-1.0-py3-none-any.whl"
    files = {
        "sayer/__init__.py": "import sys\ndef main():\n    print('said', *sys.argv[1:])\n",
        "sayer/__main__.py": "from sayer import main\nmain()\n",
        "sayer-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: sayer\nVersion: 1.0\n",
        "sayer-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any",
        "sayer-1.0.dist-info/entry_points.txt": "[console_scripts]\nsay = sayer:main\n",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        record = "".join(f"{name},,\n" for name in (*files, "sayer-1.0.dist-info/RECORD"))
        archive.writestr("sayer-1.0.dist-info/RECORD", record)
    wheel.chmod(0o644)
    return wheel


def test_scripts_start_by_their_first_line(attack_range: AttackRange) -> None:
    """A command of a virtual environment elsewhere, one by ``env``, one of the workspace's."""

    def use(place: Place) -> list[Start]:
        python = _environment(place, place.directory / "tools", place.caller.interpreter)
        for path, first in (
            (python.parent / "tool", str(python)),
            (place.directory / "by-env", "/usr/bin/env python3"),
            (place.workspace / "own", "/bin/bash"),
        ):
            body = "print('all of it works')" if "python" in first else "echo all of it works"
            path.write_text(f"#!{first}\n{body}\n")
            path.chmod(0o755)
            place.own(path)
        search = {"env": {"PATH": f"{python.parent}:{os.defpath}"}}
        return [
            Start(["tool"], search),
            Start([python.parent / "tool"]),
            Start([place.directory / "by-env"], search),
            Start(["./own"]),
        ]

    check(attack_range, use)


# --- what was there before --------------------------------------------------------


def test_git_works_in_a_repository_that_was_there(attack_range: AttackRange) -> None:
    """With its hooks, which run, and with them and its config read-only."""

    def use(place: Place) -> Start:
        hook = place.workspace / ".git/hooks/pre-commit"
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        place.outside("git", "init", "-q", "-b", "main", ".")
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\necho the hook > hook-ran\n")
        hook.chmod(0o755)
        (place.workspace / "file").write_text("one\n")
        (place.workspace / ".gitignore").write_text("hook-ran\n")
        place.own(place.workspace)
        place.outside("git", "add", ".")
        place.outside("git", *who, "commit", "-q", "-m", "one")
        return Start(["bash", place.program("git_existing_use.sh")])

    check(attack_range, use)


@needs(Capability.JAVA)
def test_java_compiles_and_runs(attack_range: AttackRange) -> None:
    """A source file in the workspace."""

    def use(place: Place) -> Start:
        shutil.copy(PROGRAMS / "Use.java", place.workspace)
        place.own(place.workspace)
        return Start(["java", "Use.java"])

    check(attack_range, use)
