"""Choose the environment variables of a run.

At strict and standard a run gets few variables of the caller, and those that were chosen.  Values
are never written to a disk.  A secret is passed by name: ``--env NAME``.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from agentctl_protocol.spec import SpecError
from agentctl_protocol.vocabulary import CONFINED, Sandbox

INHERITED: Final = frozenset(
    {"PATH", "LANG", "LANGUAGE", "TERM", "COLORTERM", "TZ", "NO_COLOR", "SHELL"}
)
"""The variables of the caller that every run gets, besides ``LC_*``.  None can be a secret."""

OWN: Final = ("HOME", "LOGNAME", "PWD", "TMPDIR", "USER")
"""The variables for which a run has its own value, unless the caller gives another."""


def inherited(level: Sandbox, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of *environ* that a run at *level* gets without an option."""
    if level not in CONFINED:
        return dict(environ)
    return {name: value for name, value in environ.items() if is_inherited(name)}


def is_inherited(name: str) -> bool:
    """Return whether every run gets the variable *name* if the caller has it."""
    return name in INHERITED or name.startswith("LC_")


def chosen(words: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that ``--env NAME`` (value from *environ*) and ``--env NAME=VALUE`` add.

    Raises:
        SpecError: a name is not valid, or *environ* has no such variable.
    """
    added: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not name.isprintable() or "\0" in word:
            raise SpecError(f"not an environment variable: {name[:80]!r}", "NAME, or NAME=VALUE")
        if not equals:
            if name not in environ:
                raise SpecError(
                    f"there is no variable {name[:80]!r} to pass on",
                    f"export it first, or --env {name[:80]}=VALUE",
                )
            value = environ[name]
        added[name] = value
    return added
