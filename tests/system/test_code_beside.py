"""A named file of code finds what lies beside it, wherever it is started."""

import pytest

from agentctl_testkit.sandbox import Sandboxed

_AGENT = """
import lib
def main():
    return lib.WORD
if __name__ == "__main__":
    print(lib.WORD)
"""


@pytest.fixture
def caller(caller: Sandboxed) -> Sandboxed:
    caller.make("other/ag.py", _AGENT)
    caller.make("other/lib.py", "WORD = 'found'\n")
    caller.make("secret", "hunter2")
    return caller


@pytest.mark.parametrize("level", ["strict", "standard"])
def test_a_function_imports_its_siblings(caller: Sandboxed, level: str) -> None:
    """In the foreground and with -d, which is another supervisor."""
    options = ("--sandbox", level, "../other/ag.py:main")
    done = caller.run("run", "-q", *options)
    assert (done.code, done.out) == (0, '"found"\n'), done.err
    assert caller.run("run", "-q", "-d", "--name", "x", *options).code == 0
    assert caller.run("wait", "x").code == 0
    assert caller.run("show", "x", "-o", "json").json()["value"] == "found"


def test_a_script_imports_its_siblings_and_nothing_around_is_shown(caller: Sandboxed) -> None:
    """They are read-only; what lies beside their directory is not there."""
    script = (
        "python3 ../other/ag.py; echo x 2>/dev/null >> ../other/lib.py || echo kept;"
        " cat ../secret 2>/dev/null || echo hidden"
    )
    argv = ("run", "-q", "--sandbox", "strict", "--", "python3", "../other/ag.py")
    done = caller.run(*argv)
    assert (done.code, done.out) == (0, "found\n"), done.err
    caller.make("other/tool", f"#!/bin/sh\n{script}\n", mode=0o755)
    done = caller.run("run", "-q", "--sandbox", "strict", "--", "../other/tool")
    assert (done.code, done.out) == (0, "found\nkept\nhidden\n"), done.err


def test_explain_says_so(caller: Sandboxed) -> None:
    """What is shown for the sake of a file is told like all that is."""
    done = caller.run("run", "--sandbox", "strict", "--explain", "../other/ag.py:main")
    assert done.code == 0, done.err
    assert f"beside the agent's code: {caller.directory}/other" in " ".join(done.out.split())
