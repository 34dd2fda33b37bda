"""What a report says about a run's files: for root and a user, at strict and at standard."""

import json
import os
import signal
import subprocess
from typing import Any

import pytest

from agentctl_testkit import AGENTS, MARKER_VARIABLE, wait_until_gone
from agentctl_testkit.cli import end_of, freeze
from agentctl_testkit.sandbox import Sandboxed

LEVELS = ("strict", "standard")


def shown(caller: Sandboxed, run: str = "x") -> Any:
    return caller.run("show", run, "-o", "json").json()


def half_writer(caller: Sandboxed, marker: str, *options: str) -> "subprocess.Popen[bytes]":
    """A run that has files open for writing, once it has said so."""
    caller.make("workspace/half_writer.py", (AGENTS / "half_writer.py").read_text())
    # A run cannot make one there.
    os.mkfifo(caller.workspace / "pipe")
    os.chown(caller.workspace / "pipe", caller.uid, caller.uid)
    process = caller.home.start(
        *("run", "--name", "x", *options, "--", "python3", "half_writer.py"),
        environment={"HOME": str(caller.directory), MARKER_VARIABLE: marker},
        as_ordinary_user=caller.ordinary,
        cwd=caller.workspace,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == b"up\n", end_of(process)
    return process


@pytest.mark.parametrize("level", LEVELS)
def test_what_changed_is_told(caller: Sandboxed, level: str) -> None:
    """New and changed files, links as such; what was there and stayed is not."""
    caller.make("workspace/same", "x")
    caller.make("workspace/old", "x")
    done = caller.shell(
        "echo more >> old; mkdir d; echo new > d/new; ln -s /etc/passwd l; echo up",
        *("--name", "x"),
        level=level,
    )
    assert (done.code, done.out) == (0, "up\n"), done.err
    told = shown(caller)["workspace"]
    assert (told["path"], told["private"]) == (str(caller.workspace), False)
    assert told["changed"] == ["./", "d/", "d/new", "l", "old"]
    assert told["special"] == ["symlink l"]
    assert (told["incomplete"], told["exposed"], told["open_at_kill"]) == ("", [], [])
    assert done.err == "", "changing files is what a run is for"


@pytest.mark.parametrize("level", LEVELS)
def test_what_it_made_is_its_callers(caller: Sandboxed, level: str) -> None:
    """Whatever uid the run had, the owner of the workspace owns what is in it afterwards."""
    done = caller.shell("mkdir -p a/b; echo x > a/b/c; ln -s c a/b/l; chmod 700 a", level=level)
    assert done.code == 0, done.err
    made = [path.lstat() for path in caller.workspace.rglob("*")]
    assert len(made) == 4
    assert {(found.st_uid, found.st_gid) for found in made} == {(caller.uid, caller.uid)}


@pytest.mark.parametrize("level", LEVELS)
def test_a_new_name_that_programs_obey_is_told_at_once(caller: Sandboxed, level: str) -> None:
    """It could not be protected before it was there: a line after the run says so."""
    script = "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit"
    done = caller.shell(script, "--name", "x", level=level)
    assert done.code == 0, done.err
    words = "it made or changed .git/hooks (git executes them): look before you go on"
    assert done.err == f"hint: {words}\n"
    assert shown(caller)["workspace"]["exposed"] == [".git/hooks"]
    assert caller.shell(script, "--unprotect", ".git", level=level).err == ""
    assert caller.run("run", "-q", "--", "touch", ".bashrc").err == ""


def test_at_standard_a_changed_name_is_told_and_at_strict_it_cannot_be(caller: Sandboxed) -> None:
    """Landlock's rules never subtract; a read-only mount does."""
    caller.make("workspace/.bashrc", "mine")
    strict = caller.shell("echo evil > .bashrc; echo new > .profile", "--name", "x")
    assert (caller.workspace / ".bashrc").read_text() == "mine"
    assert shown(caller)["workspace"]["exposed"] == [".profile"], strict.err
    caller.shell("echo evil > .bashrc", "--name", "y", level="standard")
    assert shown(caller, "y")["workspace"]["exposed"] == [".bashrc"]


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_open_at_the_kill_may_be_half_written(
    caller: Sandboxed, marker: str, level: str
) -> None:
    """Files open for writing in any of its processes; no FIFO, nothing deleted or only read."""
    process = half_writer(caller, marker, "--sandbox", level)
    stopped = caller.run("kill", "x")
    assert stopped.code == 0, stopped.err
    _, err = end_of(process)
    told = shown(caller)["workspace"]
    assert told["open_at_kill"] == ["childs", "half", "two\nlines"]
    assert {"childs", "half", "two\nlines", "read"} <= set(told["changed"])
    assert told["incomplete"] == ""
    words = "may be half written: childs, half, 'two\\nlines'"
    assert words in err
    assert words in " ".join(caller.run("show", "x").out.split())


def test_every_way_to_the_kill_looks_first(caller: Sandboxed, marker: str) -> None:
    """A time limit that ends in SIGKILL does, after SIGTERM was ignored."""
    process = half_writer(
        caller, marker, *("--sandbox", "strict", "--grace", "0.1", "--term-grace", "0.1")
    )
    assert caller.run("stop", "x").code == 0
    end_of(process)
    assert shown(caller)["workspace"]["open_at_kill"] == ["childs", "half", "two\nlines"]


def test_a_stop_past_a_frozen_supervisor_looks_first(caller: Sandboxed, marker: str) -> None:
    """Who kills in its place looks in its place; the holder writes it down when it goes on."""
    process = half_writer(caller, marker, "--sandbox", "strict")
    freeze(process)
    stopped = caller.run("kill", "x")
    assert stopped.code == 0, stopped.err
    process.send_signal(signal.SIGCONT)
    end_of(process)
    told = shown(caller)["workspace"]
    assert told["open_at_kill"] == ["childs", "half", "two\nlines"]
    assert told["incomplete"] == ""


@pytest.mark.parametrize("level", LEVELS)
def test_a_run_whose_supervisor_died_says_what_is_not_known(
    caller: Sandboxed, marker: str, level: str
) -> None:
    """Nobody asked and nobody looked; its files are its caller's, its own /tmp is gone."""
    process = half_writer(caller, marker, "--sandbox", level)
    process.kill()
    process.communicate()
    assert not wait_until_gone(marker, within_s=10)
    report = shown(caller)
    assert report["result"] == "lost"
    told = report["workspace"]
    assert (told["path"], told["changed"], told["open_at_kill"]) == (str(caller.workspace), [], [])
    assert told["incomplete"] == "its supervisor died before it looked at the files"
    assert (caller.workspace / "half").stat().st_uid == caller.uid
    assert sorted(os.listdir(caller.home.root / "runs" / report["id"])) == [
        *("00000001.log", "report", "spec"),
    ]


def test_at_standard_its_own_directories_go_with_it(caller: Sandboxed) -> None:
    """Home and /tmp are on the disk there, and hostile on purpose."""
    done = caller.shell(
        "cd $TMPDIR && mkdir -p a/b && touch a/b/c && chmod 0 a/b a && ln -s / $HOME/root"
        " && i=0; while [ $i -lt 1500 ]; do mkdir d && cd d || break; i=$((i+1)); done; echo $i",
        *("--name", "x"),
        level="standard",
    )
    assert done.out == "1500\n", done.err
    assert sorted(os.listdir(caller.home.root / "runs" / shown(caller)["id"])) == [
        *("00000001.log", "report", "spec"),
    ]


def test_a_private_workspace_stays_and_goes_with_its_run(caller: Sandboxed) -> None:
    """What the run made is in it, until somebody prunes the run, whatever it made."""
    words = "mkdir d && touch d/file && chmod 0 d; ln -s / l"
    done = caller.run(
        *("run", "--sandbox", "strict", "--name", "x", "--", "sh", "-c", words),
        cwd=caller.directory,
    )
    assert done.code == 0, done.err
    report = shown(caller)
    kept = caller.home.root / "runs" / report["id"] / "workspace"
    assert (report["workspace"]["path"], report["workspace"]["private"]) == (str(kept), True)
    assert sorted(os.listdir(kept)) == ["d", "l"]
    pruned = caller.run("prune", "--keep", "0")
    assert pruned.code == 0, pruned.err
    assert not kept.parent.exists()


def test_hostile_names_do_nothing_to_a_terminal(caller: Sandboxed) -> None:
    """They are written out in JSON and on the page, and what is no UTF-8 as well."""
    caller.shell(
        r"""printf x > "$(printf 'a\033]0;owned\007b')"; printf x > "$(printf '\377')";"""
        """ printf x > 'two
lines'""",
        *("--name", "x"),
    )
    told = shown(caller)["workspace"]
    assert set(told["changed"]) == {"./", "\0ff", "a\x1b]0;owned\x07b", "two\nlines"}
    page = caller.run("show", "x").stdout
    assert b"\x1b]0;" not in page
    assert b"\x07" not in page


def test_a_flood_of_files_is_bounded(caller: Sandboxed) -> None:
    """Twenty thousand names are counted and not kept; the end does not wait for them."""
    done = caller.shell(
        "/usr/bin/python3 -S -c 'for n in range(20000): open(str(n), \"w\").close()'", "--name", "x"
    )
    assert done.code == 0, done.err
    told = shown(caller)["workspace"]
    assert len(told["changed"]) == 1000
    if not told["incomplete"]:  # on a machine that is busy there is no time for all
        assert told["changed_left_out"] == 19_001
    assert len(json.dumps(told)) < 100_000


def test_names_further_down_are_told(caller: Sandboxed) -> None:
    """An agent and a shell obey them where they are, whether they were there before or not."""
    caller.make("workspace/sub/CLAUDE.md", "mine")
    script = "echo evil >> sub/CLAUDE.md; mkdir -p new/.vscode; echo x > new/.envrc"
    done = caller.shell(script, "--name", "x")
    assert done.code == 0, done.err
    told = shown(caller)["workspace"]["exposed"]
    assert told == ["new/.envrc", "new/.vscode", "sub/CLAUDE.md"]
    assert "sub/CLAUDE.md (coding agents follow it)" in done.err


def test_what_holds_for_the_workspace_holds_for_what_rw_opens(caller: Sandboxed) -> None:
    """Protected at the top of it, told where that cannot be, and freed by name."""
    caller.make("more/.bashrc", "mine")
    caller.make("more/sub")
    opened = ("--rw", str(caller.directory / "more"))
    script = f"cd {caller.directory}/more; echo evil > .bashrc; echo new > sub/CLAUDE.md"
    done = caller.shell(script, *opened, "--name", "x")
    assert "Read-only file system" in done.err
    assert (caller.directory / "more/.bashrc").read_text() == "mine"
    assert shown(caller)["workspace"]["exposed"] == [f"{caller.directory}/more/sub/CLAUDE.md"]
    freed = caller.shell(script, *opened, "--unprotect", ".bashrc", "--name", "y")
    assert "Read-only" not in freed.err
    assert (caller.directory / "more/.bashrc").read_text() == "evil\n"


def test_a_git_directory_by_rw_keeps_its_hooks_and_config(caller: Sandboxed) -> None:
    """The only way to use a linked worktree: what git executes stays as it was, or is told."""
    for name, text in (("HEAD", "ref: refs/heads/main\n"), ("config", "[core]\n")):
        caller.make(f"repo/.git/{name}", text)
    for name in ("objects", "refs", "hooks"):
        caller.make(f"repo/.git/{name}")
    git = caller.directory / "repo/.git"
    script = f"cd {git}; echo x > hooks/pre-commit; echo x >> config; echo x > commondir"
    done = caller.shell(script, "--rw", str(git), "--name", "x")
    assert done.err.count("Read-only file system") == 2
    assert not (git / "hooks/pre-commit").exists()
    assert shown(caller)["workspace"]["exposed"] == [f"{git}/commondir"]


def test_settings_that_hold_further_down_are_told_at_once_and_at_the_next_run(
    caller: Sandboxed,
) -> None:
    """A run can make agentctl forget the project's file in a directory below; not silently."""
    caller.make("workspace/agentctl.toml", "time = '60s'\n")
    caller.make("workspace/plain/file", "")
    caller.shell(
        "mkdir a b c d; echo 'time = \"59s\"' > a/agentctl.toml; echo '[tool.agentctl]' >"
        " b/pyproject.toml; echo '[project]' > c/pyproject.toml; mkdir d/.git",
        *("--name", "x"),
        level="strict",
    )
    told = shown(caller)["workspace"]["exposed"]
    assert told == ["a/agentctl.toml", "b/pyproject.toml"]

    passed_over = "../agentctl.toml does not hold here"
    for place, why in (
        ("a", "./agentctl.toml is nearer"),
        ("b", "./pyproject.toml is nearer"),
        ("d", "a repository begins at this directory"),
        ("c", ""),
        ("plain", ""),
    ):
        done = caller.run("run", "--", "true", cwd=caller.workspace / place)
        line = f"agentctl: {passed_over}: {why}" if why else ""
        assert (done.code, done.err.strip()) == (0, line), place
    assert caller.run("run", "-q", "--", "true", cwd=caller.workspace / "d").err == ""
