"""The table of ``docs/sandbox.md``: what became of each attack, by level and caller.

The tests that run an attack compare its row with what they saw; with
``AGENTCTL_GOLDEN=write`` they write it.  A cell that this machine or caller cannot
show ("-", or none) is neither compared nor overwritten.
"""

import contextlib
import dataclasses
import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from typing import Final

from agentctl_testkit import REPOSITORY

PAGE: Final = REPOSITORY / "docs" / "sandbox.md"
COLUMNS: Final = (
    ("strict", "root"),
    ("strict", "user"),
    ("standard", "root"),
    ("standard", "user"),
)
NOT_SHOWN: Final = "-"
_HEAD: Final = (
    "| attack | what it tries: what must happen | strict, root | strict, user "
    "| standard, root | standard, user | why what is open is harmless |"
)
_RULE: Final = "|---|---|---|---|---|---|---|"
_TABLE: Final = re.compile(re.escape(f"{_HEAD}\n{_RULE}\n") + r"(?P<rows>(?:\|.*\n)*)")


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table.  ``cells`` by level and caller."""

    name: str
    promise: str
    cells: Mapping[tuple[str, str], str]
    why: str = ""

    def __str__(self) -> str:
        cells = [self.cells.get(column, NOT_SHOWN) for column in COLUMNS]
        return f"| `{self.name}` | {' | '.join([_cell(self.promise), *cells, _cell(self.why)])} |"


def compare_or_write(seen: Row) -> None:
    """Write *seen* into the page, or compare it with what stands there.

    Raises:
        AssertionError: another row stands there, or none.
    """
    if os.environ.get("AGENTCTL_GOLDEN") == "write":
        with _locked():
            rows = rows_of(PAGE.read_text())
            rows[seen.name] = str(_merged(seen, rows.get(seen.name)))
            PAGE.write_text(_with_rows(PAGE.read_text(), rows))
        return
    written = rows_of(PAGE.read_text()).get(seen.name)
    assert written == str(_merged(seen, written)), (
        f"docs/sandbox.md has not what was seen:\n{seen}\nAGENTCTL_GOLDEN=write renews it"
    )


def rows_of(text: str) -> dict[str, str]:
    """The rows of a page by the name of the attack."""
    match = _TABLE.search(text)
    assert match is not None, "docs/sandbox.md has no table of attacks"
    return {line.split("`")[1]: line for line in match["rows"].splitlines()}


def _with_rows(text: str, rows: Mapping[str, str]) -> str:
    lines = "".join(f"{rows[name]}\n" for name in sorted(rows))
    return _TABLE.sub(lambda _: f"{_HEAD}\n{_RULE}\n{lines}", text)


def _merged(seen: Row, written: str | None) -> Row:
    """*seen*, with the cells that it does not show as they are *written*."""
    if written is None:
        return seen
    before = [cell.strip() for cell in written.strip("|").split("|")][2:6]
    cells = dict(zip(COLUMNS, before, strict=True))
    shown = {column: cell for column, cell in seen.cells.items() if cell != NOT_SHOWN}
    return dataclasses.replace(seen, cells=cells | shown)


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    with PAGE.open() as page:
        fcntl.flock(page, fcntl.LOCK_EX)
        yield


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
