"""What the documents say is so: links lead somewhere, commands work, diagrams are the code's."""

import contextlib
import itertools
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

README = REPOSITORY / "README.md"
DOCS = REPOSITORY / "docs"
GUIDE = sorted((DOCS / "guide").glob("*.md"))
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
WALKED = [README, *GUIDE]
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
        # Where there are prompts, what has none is output.
        if not line.startswith("$ ") and (kind not in {"sh", "console"} or "$ " in text):
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


@pytest.mark.parametrize("page", WALKED, ids=name_of)
def test_commands_have_the_options_that_they_are_shown_with(page: Path) -> None:
    """Every ``agentctl`` line in a code block is one that the command line understands."""
    shown = [command for _, kind, text in blocks(page) for command in commands(kind, text)]
    assert shown
    for command in shown:
        parse(command)


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, "Walk"]]:
    """The README and all pages of the guide at once: most of what they do is waiting."""
    with contextlib.ExitStack() as stack:
        yield {
            page: stack.enter_context(Walk(page, tmp_path_factory.mktemp(page.stem)))
            for page in WALKED
        }


@pytest.mark.parametrize("page", WALKED, ids=name_of)
def test_a_page_works_from_top_to_bottom(walks: dict[Path, "Walk"], page: Path) -> None:
    """Its files are written, its shell lines run in order, and no run is left at the end.

    What its sessions show is what their commands print.
    """
    code, output = walks[page].end()
    assert code == 0, output
    assert "Traceback" not in output
    for number, (command, shown) in enumerate(sessions(page)):
        printed = walks[page].printed(number)
        assert re.fullmatch(pattern_of(shown), comparable(printed)), f"$ {command}\n{printed}"


def test_the_readme_is_short_and_shows_no_output_that_is_not_compared() -> None:
    """It has less than 120 lines, and every prompt in it is in a session."""
    assert README.read_text().count("\n") < 120
    assert len(list(sessions(README))) == sum(
        line.startswith("$ ") for line in README.read_text().splitlines()
    )


def test_the_index_names_every_page() -> None:
    """``docs/README.md`` links each page of the documents, except single decisions."""
    index = DOCS / "README.md"
    linked = {(DOCS / match["target"]).resolve() for match in LINK.finditer(index.read_text())}
    wanted = {page for page in PAGES if page.parent.name != "adr"} - {index, README}
    assert wanted <= linked
    assert DOCS / "adr" in linked


def sessions(page: Path) -> Iterator[tuple[str, str]]:
    """Each command behind a prompt in the ``console`` blocks of *page*, and the output shown."""
    for _, kind, text in blocks(page):
        if kind == "console":
            yield from sessions_in(text)


def sessions_in(text: str) -> Iterator[tuple[str, str]]:
    """The same of the *text* of one block."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


#: What is another in each run of the same commands.
VARYING = (
    (r"\br-[a-z2-7]{8}\b", "RUN"),
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d -> (\S+ )?\d\d:\d\d:\d\d", "THEN"),
    (r"\b\d+(\.\d+)? ?s\b", "TIME"),
    (r"\b\d+(\.\d+)? [KM]iB\b", "SIZE"),
    (r"\buid \d+ \([^)]*\)", "USER"),
)


def comparable(text: str) -> str:
    """*text* without what varies; where its lines are broken varies with that."""
    # A stop names who is alive only if that is known in a fifth of a second.
    text = " ".join(re.sub(r":\n  .*$", "", text, flags=re.MULTILINE).split())
    for pattern, word in VARYING:
        text = re.sub(pattern, word, text)
    return text


def pattern_of(shown: str) -> str:
    """What matches the comparable form of *shown*, where a line of three dots is anything."""
    parts = re.split(r"^ *\.\.\.$", shown, flags=re.MULTILINE)
    return ".*".join(re.escape(comparable(part)) for part in parts)


def test_the_program_in_the_readme_works(tmp_path: Path) -> None:
    """The one that is whole prints what stands in its comments."""
    [program] = [
        text for _, kind, text in blocks(README) if kind == "python" and "trio.run(main)" in text
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
        self._printed = directory.with_name(f"{directory.name}-printed")
        self._printed.mkdir()
        script = ["set -eu -o pipefail"]
        numbers = itertools.count()
        for file, kind, text in blocks(page):
            if file:
                (directory / file).write_text(text)
            elif kind == "sh":
                script.append(text)
            elif kind == "console":
                script += [
                    self._step(next(numbers), command, shown)
                    for command, shown in sessions_in(text)
                ]
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

    def _step(self, number: int, command: str, shown: str) -> str:
        """Shell lines that put what *command* prints into a file of its own."""
        said = shlex.quote(str(self._printed / str(number)))
        step = f"{{ {command}\n}} >{said} 2>&1"
        if not command.startswith("agentctl logs "):
            return f"{step} || true"  # what it prints says what became of it
        # A reader types slower than a program starts to write; a shell does not.
        lines = shown.count("\n")
        return f"until {step}; test $(wc -l <{said}) -ge {lines}; do sleep 0.05; done"

    def printed(self, number: int) -> str:
        """What the command of that number in the page's sessions printed."""
        return (self._printed / str(number)).read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._shell.kill()
        self._shell.communicate()

    def end(self) -> tuple[int, str]:
        """Exit code, and all that was printed."""
        output, _ = self._shell.communicate(timeout=90)
        return self._shell.returncode, output
