"""What a run knows of our environment: at strict and standard little, and only what was chosen.

Values never reach a disk.  A secret gets in by name: ``--env NAME``.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from agentctl_protocol.spec import SpecError
from agentctl_protocol.vocabulary import CONFINED, Sandbox

INHERITED: Final = frozenset(
    {"PATH", "LANG", "LANGUAGE", "TERM", "COLORTERM", "TZ", "NO_COLOR", "SHELL"}
)
"""What every run gets of ours, besides ``LC_*``: nothing that could be a secret."""

OWN: Final = ("HOME", "LOGNAME", "PWD", "TMPDIR", "USER")
"""What the run has of its own, unless it was given another."""


def inherited(level: Sandbox, environ: Mapping[str, str]) -> dict[str, str]:
    """What of *environ* a run at *level* gets without anybody asking for it."""
    if level not in CONFINED:
        return dict(environ)
    return {name: value for name, value in environ.items() if is_inherited(name)}


def is_inherited(name: str) -> bool:
    """Whether every run gets the variable *name*, if we have it."""
    return name in INHERITED or name.startswith("LC_")


def chosen(words: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """What ``--env NAME`` (from *environ*) and ``--env NAME=VALUE`` add.

    Raises:
        SpecError: it is no name, or *environ* has no such variable.
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
