"""A run's standard streams by their names, /dev/stdout and the like."""

import os

import pytest

from agentctl_testkit.capabilities import Capability
from agentctl_testkit.sandbox import Sandboxed

LEVELS = ("strict", "standard", "basic")


@pytest.mark.parametrize("level", LEVELS)
def test_they_can_be_opened_by_name(caller: Sandboxed, level: str) -> None:
    """By a program of another user than the one who made the pipes, and by its children."""
    script = "echo out > /dev/stdout; echo err | tee /dev/stderr > /dev/null; cat /dev/stdin"
    done = caller.shell(script, "-q", level=level)
    assert (done.code, done.out, done.err) == (0, "out\n", "err\n")


@pytest.mark.parametrize("level", LEVELS)
def test_an_open_standard_input_is_read_by_name(caller: Sandboxed, level: str) -> None:
    """The caller's."""
    argv = ("run", "-q", "-i", "--sandbox", level, "--", "cat", "/dev/stdin")
    done = caller.home.run(
        *argv,
        input=b"in",
        environment={"HOME": str(caller.directory)},
        as_ordinary_user=caller.ordinary,
        cwd=caller.workspace,
    )
    assert (done.code, done.out) == (0, "in"), done.err


def test_a_function_can_open_them_by_name(caller: Sandboxed) -> None:
    """Its process was forked, and not made by an exec."""
    caller.make("workspace/m.py", "def main():\n    open('/dev/stdout', 'w').write('out')\n")
    done = caller.run("run", "-q", "--sandbox", "strict", "m.py:main")
    assert (done.code, done.out) == (0, "out"), done.err


@pytest.mark.needs(Capability.ROOT)
def test_a_run_without_a_pid_namespace_can_open_them_by_name(caller: Sandboxed) -> None:
    """There, a run of root's gets its uid late."""
    environment = {"AGENTCTL_CONTAINMENT": "subreaper", "HOME": str(caller.directory)}
    argv = ("run", "-q", "--sandbox", "basic", "--", "sh", "-c", "id -u > /dev/stdout")
    done = caller.run(*argv, environment=environment)
    assert done.code == 0, done.err
    assert int(done.out) != 0


def test_the_null_device_stays_whose_it_was(caller: Sandboxed) -> None:
    """It is the input of a run that has none."""
    before = os.stat(os.devnull)
    assert caller.shell("cat /dev/stdin", "-q").code == 0
    after = os.stat(os.devnull)
    assert (after.st_uid, after.st_gid, after.st_mode) == (
        before.st_uid,
        before.st_gid,
        before.st_mode,
    )
