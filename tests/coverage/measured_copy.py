"""Makes a copy of the tree record its lines, and turns the record into coverage.py's data.

``python measured_copy.py prepare COPY`` before the tests of COPY run, and ``python
measured_copy.py collect COPY TREE`` afterwards.  See ``.ci/coverage``.

The copy is changed, and not the interpreter's start: our processes are isolated, and read neither
``.pth`` files nor variables.
"""

import ast
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from coverage import CoverageData

_ROOTS: Final = ("protocol", "runner_child", "supervisor")
_RECORDER: Final = Path("protocol", "agentctl_protocol", "line_recorder.py")


def prepare(copy: Path) -> None:
    """Let every process that imports one of the packages in *copy* record its lines."""
    offset = 0
    index = []
    for path in _modules(copy):
        index.append(f"{offset} {path.relative_to(path.parts[0])}\n")
        offset += len((copy / path).read_bytes().splitlines()) + 1
    recorder = copy / _RECORDER
    shutil.copy(Path(__file__).with_name("line_recorder.py"), recorder)
    recorder.with_suffix(".index").write_text("".join(index))
    lines = recorder.with_suffix(".lines")
    lines.write_bytes(bytes(offset))
    lines.chmod(0o666)  # some tests go on as another user
    for package in copy.glob("*/agentctl_*/__init__.py"):
        text = package.read_text().splitlines(keepends=True)
        docstring = ast.parse("".join(text)).body[0]
        assert isinstance(docstring, ast.Expr)
        # On the line where the docstring ends, so that no line gets another number.
        last = (docstring.end_lineno or 1) - 1
        text[last] = text[last].rstrip("\n") + "; from agentctl_protocol import line_recorder\n"
        package.write_text("".join(text))


def collect(copy: Path, tree: Path) -> None:
    """Write ``.coverage`` in *tree* from what the processes of *copy* recorded."""
    recorder = copy / _RECORDER
    marks = recorder.with_suffix(".lines").read_bytes()
    offset = 0
    data = CoverageData(str(tree / ".coverage"))
    data.erase()
    for path in _modules(tree):
        length = len((tree / path).read_bytes().splitlines()) + 1
        run = [line for line in range(length) if marks[offset + line]]
        data.add_lines({str(tree / path): run})
        offset += length
    data.write()


def _modules(tree: Path) -> Iterator[Path]:
    """All modules of the three packages in *tree*, relative to it, in an order that stays."""
    for root in _ROOTS:
        for path in sorted((tree / root).glob("agentctl_*/**/*.py")):
            if path.relative_to(tree) != _RECORDER:
                yield path.relative_to(tree)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["prepare", copy]:
            prepare(Path(copy).resolve())
        case ["collect", copy, tree]:
            collect(Path(copy).resolve(), Path(tree).resolve())
        case _:
            sys.exit(__doc__)
