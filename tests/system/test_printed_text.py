"""What the commands print is safe to look at, whatever an agent said, and JSON keeps its value."""

import json
import os
import runpy
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from agentctl_protocol.shell_words import shell_word
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.visible_text import is_visible
from agentctl_supervisor.text.json_text import json_line, json_page
from agentctl_testkit import AGENTS, AgentctlHome

SAID = runpy.run_path(str(AGENTS / "terminal_driver.py"))["SAID"]
_SCALARS = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))


def _assert_safe(data: bytes, is_safe: Callable[[str], bool] = is_visible) -> None:
    assert sorted({hex(ord(c)) for c in data.decode() if c != "\n" and not is_safe(c)}) == []


@pytest.mark.parametrize("function", ["main", "broken"])
def test_no_command_prints_what_a_terminal_obeys(
    home: AgentctlHome, tmp_path: Path, function: str
) -> None:
    """C1, bidirectional and tag characters of an agent reach nobody's terminal as they are."""
    target = f"{AGENTS / 'terminal_driver.py'}:{function}"
    work = tmp_path / "work"
    work.mkdir()
    done = home.run("run", "-q", "--name", "told", target, cwd=work)
    _assert_safe(done.stdout)
    for command in (
        *("show told", "show -o json told", "wait told", "wait -o json told", "events told"),
        *("ps -a", "ps -a -o json", "stop told", "stop -o json told"),
        *("prune --keep 0 --dry-run", "prune --keep 0 --dry-run -o json"),
    ):
        done = home.run(*command.split())
        as_json = command.startswith("events") or "json" in command
        is_safe = is_visible if as_json else str.isprintable
        _assert_safe(done.stdout + done.err.encode(), is_safe)
    # What the run itself writes to its stderr passes through: that is not ours.
    _assert_safe(home.run("rerun", "-q", "-o", "json", "told", cwd=work).stdout)


def test_what_is_escaped_decodes_to_the_same_value(home: AgentctlHome, tmp_path: Path) -> None:
    """The value of a function is what it returned, for whatever reads JSON."""
    target = f"{AGENTS / 'terminal_driver.py'}:main"
    done = home.run("run", "-q", "--name", "told", target, cwd=tmp_path)
    assert json.loads(done.stdout) == {SAID: SAID}
    assert json.loads(home.run("show", "-o", "json", "told").stdout)["value"] == {SAID: SAID}


@pytest.mark.parametrize("form", [json_line, json_page])
def test_every_character_survives_json(form: Callable[[object], str]) -> None:
    """All of Unicode as a key and as a value; numbers as they are; what is no number is null."""
    value = {_SCALARS: [_SCALARS, 2**64 - 1, -0.5, None]}
    text = form(value)
    assert all(map(is_visible, text.split("\n")))
    assert json.loads(text) == msgspec.json.decode(text) == value
    # A name that is not UTF-8 (PEP 383): msgspec neither writes nor formats it.
    odd = {"path": "/a\udcff\u009b", "ratio": float("nan")}
    assert json.loads(form(odd)) == odd | {"ratio": None}
    assert form("日本語 ü") == '"日本語 ü"'


@pytest.mark.parametrize(
    "word",
    [
        *("plain/path-1.py:f", "two words", "$(id)`id`;&|", "it's", "-x", "~", "", "ü 日本"),
        *("a\u009b31m\u202e1", "two\nlines\t'\\", "\udcff\udc9b7", "\x1b]0;t\x07", "a\u2028b"),
    ],
)
def test_a_word_offered_for_copying_is_that_word(word: str) -> None:
    """It comes out of a shell as it is, and only shows on the way."""
    shown = shell_word(word)
    assert shown.isprintable()
    told = subprocess.run(
        ["bash", "-c", f"printf %s {shown}"], capture_output=True, check=True
    ).stdout
    assert told == os.fsencode(word)


def test_the_command_of_a_run_can_be_copied() -> None:
    """Also when arguments hold lines, control characters and what is no UTF-8."""
    argv = ("sh", "-c", "echo 'a'\necho \u009bb", "\udcff")
    command = RunSpec(argv=argv).checked().command
    assert command.isprintable()
    told = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True
    ).stdout
    assert told.split(b"\0")[:-1] == [os.fsencode(word) for word in argv]


def test_names_in_a_bundle_are_safe_to_list(home: AgentctlHome, tmp_path: Path) -> None:
    """An artifact's name is the agent's; what tar shows of it is not."""
    work = tmp_path / "work"
    work.mkdir()
    home.run("run", "-q", "--name", "told", f"{AGENTS / 'terminal_driver.py'}:main", cwd=work)
    bundle = tmp_path / "told.tar"
    done = home.run("export", "-f", str(bundle), "told")
    _assert_safe(done.stdout + done.err.encode())
    with tarfile.open(bundle) as tar:
        names = tar.getnames()
        held = {name: file.read() for name in names if (file := tar.extractfile(name))}
        (made,) = [data for name, data in held.items() if "/artifacts/" in name]
        assert made == SAID.encode()
        for name, data in held.items():
            if name.endswith(".json"):
                _assert_safe(data)
    assert all(map(is_visible, names))
