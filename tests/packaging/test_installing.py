"""The command is what it is in the repository, and works, however agentctl is installed."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from agentctl_testkit import REPOSITORY, AgentctlHome, command_of
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.ordinary import copy_needed

_SOURCE: Final = REPOSITORY / "bin/agentctl"
_NAME: Final = "agentctl-supervisor"

Uninstall = Callable[[], object]
"""Takes agentctl out again."""


def _do(*argv: str | Path, **environment: str) -> None:
    subprocess.run(argv, env={**os.environ, **environment}, check=True, stdout=subprocess.DEVNULL)


def _site(venv: Path) -> Path:
    [site] = venv.glob("lib/python*/site-packages")
    return site


def _by_pip(where: Path, what: tuple[str | Path, ...]) -> tuple[Path, Uninstall]:
    venv = where / "venv"
    _do(sys.executable, "-m", "venv", venv)
    pip = (venv / "bin/python", "-m", "pip", "-q")
    _do(*pip, "install", "--no-deps", *what)
    copy_needed(_site(venv))
    return venv / "bin/agentctl", lambda: _do(*pip, "uninstall", "-y", _NAME)


def _by_uv_pip(where: Path, what: tuple[str | Path, ...]) -> tuple[Path, Uninstall]:
    venv = where / "venv"
    _do(sys.executable, "-m", "venv", "--without-pip", venv)
    uv, its = ("uv", "--quiet", "--offline", "pip"), ("--python", venv / "bin/python")
    _do(*uv, "install", *its, "--link-mode", "copy", "--no-deps", *what)
    copy_needed(_site(venv))
    return venv / "bin/agentctl", lambda: _do(*uv, "uninstall", *its, _NAME)


def _by_uv_tool(where: Path, what: tuple[str | Path, ...]) -> tuple[Path, Uninstall]:
    # For no machine: so nothing has to be fetched.
    none = where / "none.txt"
    none.write_text(
        "".join(f"{name}; python_version < '3'\n" for name in ("msgspec", "psutil", "trio"))
    )
    its = {"UV_TOOL_DIR": str(where / "tools"), "UV_TOOL_BIN_DIR": str(where / "bin")}
    uv = ("uv", "--quiet", "--offline", "tool")
    _do(*uv, "install", "--python", sys.executable, "--link-mode", "copy", "--overrides", none,
        *what, **its)  # fmt: skip
    copy_needed(_site(where / "tools" / _NAME))
    return where / "bin/agentctl", lambda: _do(*uv, "uninstall", _NAME, **its)


def _by_pipx(where: Path, what: tuple[str | Path, ...]) -> tuple[Path, Uninstall]:
    its = {"PIPX_HOME": str(where / "pipx"), "PIPX_BIN_DIR": str(where / "bin")}
    # It wants to see what agentctl needs, and so fetches it.
    _do("pipx", "install", "-q", "--python", sys.executable, *what, **its)
    return where / "bin/agentctl", lambda: _do("pipx", "uninstall", _NAME, **its)


_WAYS: Final = {
    "pip": pytest.param(_by_pip, (), marks=needs(Capability.ENSUREPIP)),
    "pip -e": pytest.param(_by_pip, ("-e", REPOSITORY), marks=needs(Capability.ENSUREPIP)),
    "pipx": pytest.param(_by_pipx, (), marks=needs(Capability.PIPX)),
    "uv pip": pytest.param(_by_uv_pip, (), marks=needs(Capability.UV)),
    "uv tool": pytest.param(_by_uv_tool, (), marks=needs(Capability.UV)),
}


@pytest.mark.parametrize(("install", "what"), _WAYS.values(), ids=_WAYS)
def test_the_command_is_installed_as_it_is_works_and_goes(
    install: Callable[[Path, tuple[str | Path, ...]], tuple[Path, Uninstall]],
    what: tuple[str | Path, ...],
    wheel: Path,
    home: AgentctlHome,
    tmp_path: Path,
) -> None:
    """Byte for byte, executable, with the packages of its own environment and no others."""
    command, uninstall = install(tmp_path, what or (wheel,))

    assert command.read_bytes() == _SOURCE.read_bytes()
    assert stat.S_IMODE(command.stat().st_mode) & 0o555 == 0o555
    for arguments in (["--version"], ["run", "-q", "--", "true"], ["run", "-q", "a.py:main"]):
        (tmp_path / "a.py").write_text("import trio\ndef main(): return trio.__file__\n")
        done = subprocess.run(
            [command, *arguments], cwd=tmp_path, env=home.environment, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
    assert str(tmp_path) in done.stdout

    uninstall()
    assert not os.path.lexists(command)


def test_the_command_of_this_environment_is_that_of_the_repository() -> None:
    """An editable install copies it: after a change, pip install -e '.[test]' again."""
    installed = Path(command_of(sys.executable))

    assert installed.read_bytes() == _SOURCE.read_bytes()


@pytest.mark.parametrize("missing", ["python", "packages"])
def test_without_its_python_or_its_packages_it_says_what_to_do(
    missing: str, tmp_path: Path
) -> None:
    """As after pip install --user, or --target: 127, and how to install it."""
    (tmp_path / "bin").mkdir()
    shutil.copy(_SOURCE, tmp_path / "bin/agentctl")
    if missing == "packages":
        (tmp_path / "bin/python").symlink_to(sys.executable)

    done = subprocess.run(
        [tmp_path / "bin/agentctl", "--version"], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.splitlines()[-1] == (
        "hint: install with pipx, uv tool, or pip in a virtual environment"
    )
