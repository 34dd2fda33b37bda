"""Describes a run's files for people.  Pure functions.

The agent chooses the names of the files.  A name that could control a terminal, or could look like
several names, is shown as a Python literal.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from agentctl_protocol.report import Report, Workspace
from agentctl_supervisor.policy.obeyed_names import reason

_NAMES: Final = 5
_LONGEST: Final = 60
_AMBIGUOUS: Final = frozenset(" ,'\"\\")
_ESCAPED: Final = re.compile(r"\\\\|\\x00([89a-f][0-9a-f])")
"""Matches, in a literal, a backslash or a byte that is not UTF-8 (`os_names`)."""


def facts(report: Report) -> Iterator[tuple[str, str]]:
    """Yield labels and texts for the page about *report*."""
    workspace = report.workspace
    if not workspace.path:
        return
    yield "workspace", name(workspace.path) + (" (its own)" if workspace.private else "")
    if workspace.open_at_kill:
        yield "unfinished", f"may be half written: {names(workspace.open_at_kill)}"
    if workspace.exposed:
        yield "exposed", f"{_obeyed(workspace)}: look before you go on"
    if workspace.changed:
        yield "changed", _changed(workspace)
    if workspace.special:
        yield "special", names(workspace.special, _kind_and_name)
    if workspace.incomplete:
        yield "not seen", workspace.incomplete


def hints(report: Report) -> Iterator[str]:
    """Yield what the user should know before using the files that the run left, one line each."""
    workspace = report.workspace
    if workspace.exposed:
        yield f"it made or changed {_obeyed(workspace)}: look before you go on"
    if workspace.open_at_kill:
        noun = "this was" if len(workspace.open_at_kill) == 1 else "these were"
        yield (
            f"{noun} open for writing when it was killed, and may be half written:"
            f" {names(workspace.open_at_kill)}"
        )


def name(path: str) -> str:
    """Return *path* as one word that is safe on a terminal."""
    shown = path if len(path) <= _LONGEST else "..." + path[3 - _LONGEST :]
    if shown.isprintable() and not _AMBIGUOUS.intersection(shown):
        return shown
    # In the literal, a backslash of the name is doubled; a byte that is not UTF-8 has a single one.
    return _ESCAPED.sub(lambda found: rf"\x{found[1]}" if found[1] else found[0], repr(shown))


def names(paths: Sequence[str], word: Callable[[str], str] = name, left_out: int = 0) -> str:
    """Return the first of *paths*, and the number of the others."""
    text = ", ".join(word(path) for path in paths[:_NAMES])
    more = max(len(paths) - _NAMES, 0) + left_out
    return f"{text} and {more} more" if more else text


def _changed(workspace: Workspace) -> str:
    # A directory changes when its entries change: mention directories only if no file changed.
    files = [path for path in workspace.changed if not path.endswith("/")]
    if not files:
        return names([path for path in workspace.changed if path != "./"] or ["./"])
    count = len(files) + workspace.changed_left_out
    noun = "file" if count == 1 else "files"
    return f"{count} {noun}: {names(files, left_out=workspace.changed_left_out)}"


def _obeyed(workspace: Workspace) -> str:
    return names(workspace.exposed, _name_and_reason)


def _name_and_reason(path: str) -> str:
    return f"{name(path)} ({reason(path)})"


def _kind_and_name(special: str) -> str:
    kind, _, path = special.partition(" ")
    return f"{kind} {name(path)}"
