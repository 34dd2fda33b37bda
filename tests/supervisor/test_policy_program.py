"""What a program needs is found from its links, its first line and its installation."""

import stat
from pathlib import Path

import pytest

from agentctl_supervisor.policy.program import Program, Surroundings, look_up, module_code
from agentctl_supervisor.policy.unsuitable_directories import Places

_PLACES = Places(homes=("/home/ada",), home="/home/ada", states=())


def _executable(path: Path, text: str = "\x7fELF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def _found(
    *argv: str, path: str = "", here: str = "/", there: str = "/", writable: tuple[str, ...] = ()
) -> Program:
    return look_up(argv, Surroundings(path, here, there, _PLACES, writable))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def test_an_installation_is_what_its_bin_directory_lies_in(root: Path) -> None:
    """As node under nvm, or a tool under /opt: its libraries are beside ``bin``."""
    node = _executable(root / "node/v20/bin/node")
    assert str(root / "node/v20") in _found("node", path=str(node.parent)).needs


def test_every_link_on_the_way_is_an_installation(root: Path) -> None:
    """A virtual environment's python is a link, perhaps to another link."""
    real = _executable(root / "pyenv/versions/3.11/bin/python3.11")
    (real.parent / "python3").symlink_to("python3.11")
    venv = root / "project/.venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to(real.parent / "python3")
    found = _found(str(venv / "bin/python"), "-c", "1")
    assert {str(venv), str(root / "pyenv/versions/3.11")} <= set(found.needs)


def test_a_virtual_environment_says_where_its_interpreter_is(root: Path) -> None:
    """PEP 405: also where the link does not lead there."""
    venv = root / "venv"
    _executable(venv / "bin/python")
    (root / "uv/cpython/bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text(f"home = {root}/uv/cpython/bin\nversion = 3.12\n")
    assert str(root / "uv/cpython") in _found(str(venv / "bin/python")).needs


def test_a_script_needs_the_interpreter_that_it_names(root: Path) -> None:
    """As pipx and uv do it: link in ~/.local/bin, script in a venv, interpreter elsewhere."""
    python = _executable(root / "pipx/venvs/tool/bin/python")
    tool = _executable(root / "pipx/venvs/tool/bin/tool", f"#!{python}\nimport tool\n")
    (root / "local/bin").mkdir(parents=True)
    (root / "local/bin/tool").symlink_to(tool)
    found = _found("tool", path=str(root / "local/bin"))
    assert {str(root / "pipx/venvs/tool"), str(python)} <= set(found.needs)


def test_env_in_the_first_line_is_looked_up(root: Path) -> None:
    """``#!/usr/bin/env node`` means the node on PATH."""
    node = _executable(root / "node/bin/node")
    script = _executable(root / "agent.js", "#!/usr/bin/env -S node --flag\n")
    assert str(root / "node") in _found(str(script), path=str(node.parent)).needs


@pytest.mark.parametrize(
    ("words", "is_code"),
    [
        (["python3", "agent.py", "x"], True),
        (["python3.11", "-u", "-W", "error", "agent.py"], True),
        (["bash", "agent.py"], True),
        (["bash", "-e", "-o", "pipefail", "agent.py"], True),
        (["node", "--", "agent.py"], True),
        (["python3", "-c", "agent.py"], False),
        (["sh", "-ec", "agent.py"], False),
        (["perl", "-e", "agent.py"], False),
        (["cat", "agent.py"], False),
    ],
)
def test_the_script_of_an_interpreter_is_code(root: Path, words: list[str], is_code: bool) -> None:
    """It is shown, and read-only; what another program reads is only its argument."""
    _executable(root / "bin" / words[0])
    (root / "agent.py").touch()
    found = _found(*words, path=str(root / "bin"), here=str(root), there=str(root))
    assert (str(root / "agent.py") in found.code) is is_code


def test_a_module_that_python_runs_is_code(root: Path) -> None:
    """As a file or as a package."""
    _executable(root / "bin/python3")
    (root / "pkg").mkdir()
    found = _found("python3", "-m", "pkg.x", path=str(root / "bin"), there=str(root))
    assert str(root / "pkg") in found.code
    assert module_code("missing", str(root)) == []


def test_a_script_in_our_directory_is_found_from_the_runs(root: Path) -> None:
    """A run with another working directory gets it by its full path; one that it has, as it is."""
    _executable(root / "bin/python3")
    for name in ("here/agent.py", "there/other.py", "here/other.py"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).touch()
    here, there, path = str(root / "here"), str(root / "there"), str(root / "bin")
    found = _found("python3", "agent.py", path=path, here=here, there=there)
    assert found.argv == ("python3", f"{here}/agent.py")
    found = _found("python3", "other.py", path=path, here=here, there=there)
    assert found.argv == ("python3", "other.py")


def test_what_is_not_there_needs_nothing(root: Path) -> None:
    """It is the child that says so, as a shell would."""
    assert _found("nothing-of-that-name", path=str(root)) == Program(("nothing-of-that-name",))
    loop = root / "loop"
    loop.symlink_to("loop")
    assert _found(str(loop)) == Program((str(loop),))


def test_a_first_line_of_garbage_is_no_interpreter(root: Path) -> None:
    """Whatever stands in the file of somebody else."""
    for text in (
        "#!",
        "#!\n",
        "#! \n",
        "#!/usr/bin/env\n",
        "#!/usr/bin/env -S A=1\n",
        "#!" + "x" * 9999,
    ):
        script = _executable(root / "script", text)
        assert stat.S_ISREG(script.stat().st_mode)
        assert _found(str(script)).code == (str(script),)


def test_what_a_run_may_have_written_opens_nothing_but_installations(root: Path) -> None:
    """A link, a first line, a pyvenv.cfg: planted by one run for the next to be shown a secret."""
    workspace = root / "workspace"
    secret = _executable(root / "secret/bin/tool")
    (workspace / "bin").mkdir(parents=True)
    (workspace / "bin/tool").symlink_to(secret)
    _executable(workspace / "script", f"#!{secret}\n")
    _executable(workspace / "venv/bin/python")
    (workspace / "venv/pyvenv.cfg").write_text(f"home = {root}/secret/bin\n")
    for program in ("bin/tool", "script", "venv/bin/python"):
        words = str(workspace / program)
        assert str(root / "secret") in _found(words).needs
        needs = _found(words, writable=(str(workspace),)).needs
        assert not [need for need in needs if need.startswith(str(root / "secret"))]
    # What is an installation by itself is one, whoever points at it.
    (root / "secret/lib/python3.11").mkdir(parents=True)
    (root / "secret/lib/python3.11/os.py").touch()
    for program in ("bin/tool", "script", "venv/bin/python"):
        needs = _found(str(workspace / program), writable=(str(workspace),)).needs
        assert str(root / "secret") in needs
