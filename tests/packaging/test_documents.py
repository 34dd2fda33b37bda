"""What the documents say is so: links lead somewhere, commands work, diagrams are the code's."""

import contextlib
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from agentctl_supervisor.cli.arguments import parse
from agentctl_testkit import REPOSITORY, command_of

GUIDE = sorted((REPOSITORY / "docs" / "guide").glob("*.md"))
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
#: A code block; one with a file's name in the line before it is that file.
BLOCK = re.compile(
    r"^(?:`(?P<file>[\w.]+)`\n\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"\]\((?!https?:|#)(?P<target>[^)#\s]+)")


def name_of(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def blocks(page: Path) -> Iterator[tuple[str, str, str]]:
    """File name (or nothing), kind and text of each code block."""
    for match in BLOCK.finditer(page.read_text()):
        yield match["file"] or "", match["kind"], match["text"]


def test_the_state_diagrams_are_those_of_the_code() -> None:
    """``docs/states.md`` is what its script makes of the tables now."""
    made = runpy.run_path(str(REPOSITORY / "docs" / "make_states.py"))
    assert made["PAGE"].read_text() == made["page"](), "run: python docs/make_states.py"


def test_the_table_of_shared_counters_is_that_of_the_code() -> None:
    """``docs/shared-counters.md`` is what its script makes of the table now."""
    made = runpy.run_path(str(REPOSITORY / "docs" / "make_counters.py"))
    assert made["PAGE"].read_text() == made["page"](), "run: python docs/make_counters.py"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files(page: Path) -> None:
    """Each relative link is the path of something that is there."""
    targets = [match["target"] for match in LINK.finditer(page.read_text())]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def commands(kind: str, text: str) -> Iterator[list[str]]:
    """The words behind each ``agentctl`` of a block, up to where its command ends."""
    for line in text.splitlines():
        # In a block without a kind, what has no prompt is output.
        if kind not in {"sh", "console"} and not line.startswith("$ "):
            continue
        words = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        words.commenters = "#"
        command: list[str] | None = None
        for word in [*words, ";"]:
            if set(word) <= set("|&;<>()"):
                if command is not None:
                    yield command
                command = None
            elif command is not None:
                command.append(word)
            elif word == "agentctl":
                command = []


@pytest.mark.parametrize("page", [PAGES[0], *GUIDE], ids=name_of)
def test_commands_have_the_options_that_they_are_shown_with(page: Path) -> None:
    """Every ``agentctl`` line in a code block is one that the command line understands."""
    shown = [command for _, kind, text in blocks(page) for command in commands(kind, text)]
    assert shown
    for command in shown:
        parse(command)


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, "Walk"]]:
    """All pages of the guide at once: most of what they do is waiting."""
    with contextlib.ExitStack() as stack:
        yield {
            page: stack.enter_context(Walk(page, tmp_path_factory.mktemp(page.stem)))
            for page in GUIDE
        }


@pytest.mark.parametrize("page", GUIDE, ids=name_of)
def test_a_page_of_the_guide_works_from_top_to_bottom(
    walks: dict[Path, "Walk"], page: Path
) -> None:
    """Its files are written, its shell lines run in order, and no run is left at the end."""
    code, output = walks[page].end()
    assert code == 0, output
    assert "Traceback" not in output


def test_the_program_in_the_readme_works(tmp_path: Path) -> None:
    """The one that is whole prints what stands in its comments."""
    [program] = [
        text
        for _, kind, text in blocks(REPOSITORY / "README.md")
        if kind == "python" and "trio.run(main)" in text
    ]
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "AGENTCTL_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"print\(.*\)  # (.*)", program)


class Walk:
    """What a user does who follows a page, in a shell with our virtualenv active."""

    def __init__(self, page: Path, directory: Path) -> None:
        tools = directory / "bin"
        tools.mkdir()
        (tools / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (tools / "python3").chmod(0o755)
        (tools / "agentctl").symlink_to(command_of(sys.executable))
        for folder in ("docs", "examples"):
            # As in a checkout: what a link leads to, a run would not see.
            shutil.copytree(REPOSITORY / folder, directory / folder)
        script = ["set -eu -o pipefail"]
        for file, kind, text in blocks(page):
            if file:
                (directory / file).write_text(text)
            elif kind == "sh":
                script.append(text)
        script.append('test -z "$(agentctl ps -q)"')
        keep = {key: value for key, value in os.environ.items() if not key.startswith("AGENTCTL_")}
        self._shell = subprocess.Popen(
            ["bash", "-c", "\n".join(script)],
            cwd=directory,
            env={
                **keep,
                "AGENTCTL_HOME": str(directory / "home"),
                "MODEL_WORDS_PER_S": "2000",
                "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._shell.kill()
        self._shell.communicate()

    def end(self) -> tuple[int, str]:
        """Exit code, and all that was printed."""
        output, _ = self._shell.communicate(timeout=90)
        return self._shell.returncode, output
