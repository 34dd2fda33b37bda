"""Starts modules of ours in interpreters that obey nothing of their environment.

With ``-I`` and ``-S``, Python executes no ``.pth`` line and no ``sitecustomize``, and heeds no
``PYTHON*`` variable (docs/adr/0016).  What is left out with those, the search path of our own
packages above all, is handed over on the command line.  The command ``agentctl`` is started in
the same way, by ``bin/agentctl``.
"""

import os
import runpy
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final

PACKAGES: Final = (
    *("msgspec", "psutil", "trio", "attr", "attrs", "idna", "outcome", "sniffio"),
    *("sortedcontainers", "agentctl_protocol", "agentctl_child", "agentctl_supervisor"),
)
"""All that agentctl imports but for the standard library.

Ours are the last: beside their sources there may be files by the names of the others.
"""


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line of a new process that runs *module* with *arguments*."""
    folders = dict.fromkeys(os.path.dirname(os.path.abspath(path)) for path in locations())
    own = os.path.abspath(__file__)
    return [sys.executable, "-I", "-S", own, sys.prefix, *folders, module, *arguments]


def locations() -> Iterator[str]:
    """Return the directories that are `PACKAGES`; nothing is imported to find them."""
    for name in PACKAGES:
        spec = find_spec(name)
        yield from (spec.submodule_search_locations or ()) if spec else ()


def _run(words: list[str]) -> None:
    """Run a module in this process; *words* are those behind our file in `command`."""
    # Only paths begin with a slash.
    count = next(at for at, word in enumerate(words) if not word.startswith("/"))
    prefix, *folders = words[:count]
    if prefix != sys.prefix:
        # Without site, Python before 3.14 takes a virtual environment for what it was made of.
        sys.prefix = sys.exec_prefix = prefix
    sys.path += folders
    sys.argv[1:] = words[count + 1 :]
    runpy.run_module(words[count], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run(sys.argv[1:])
