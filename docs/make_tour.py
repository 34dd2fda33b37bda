"""Writes the tour of the files in ``architecture.md`` from the modules' own first lines.

``python docs/make_tour.py`` rewrites it; a test fails when it is stale.
"""

import ast
import re
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parent.parent
ARCHITECTURE: Final = REPOSITORY / "docs" / "architecture.md"


def with_tour(text: str) -> str:
    """*text* of ``architecture.md`` with its tables as the files are now."""

    def table(match: re.Match[str]) -> str:
        root = REPOSITORY / match["folder"]
        rows = [f"| `{path.relative_to(root)}` | {_first_line(path)} |" for path in _modules(root)]
        return "\n".join([match["heading"], "| file | what it is |", "|---|---|", *rows, ""])

    return re.sub(
        r"(?P<heading>### (?P<folder>[\w/]+)/\n)\n"
        r"\| file \| what it is \|\n\|---\|---\|\n(?:\|.*\n)*",
        table,
        text,
    )


def _modules(root: Path) -> list[Path]:
    """Files of the package itself first, then package by package."""
    return sorted(root.rglob("*.py"), key=lambda path: (path.parent != root, path))


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(docstring.partition("\n\n")[0].split())


if __name__ == "__main__":
    ARCHITECTURE.write_text(with_tour(ARCHITECTURE.read_text()))
