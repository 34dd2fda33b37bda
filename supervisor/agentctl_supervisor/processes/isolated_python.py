"""Starts our own modules in Python interpreters that ignore their environment.

With ``-I`` and ``-S``, Python executes no ``.pth`` line and no ``sitecustomize``, and ignores all
``PYTHON*`` variables (docs/adr/0016).  This also removes the search path of our own packages, so
the command line passes it on.  ``bin/agentctl`` starts the command ``agentctl`` in the same way.
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
"""All packages that agentctl imports, without the standard library.

Our own packages are last: a directory that holds their sources may also hold files with the
names of the other packages.
"""


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line of a new process that runs *module* with *arguments*."""
    folders = dict.fromkeys(os.path.dirname(os.path.abspath(path)) for path in locations())
    own = os.path.abspath(__file__)
    return [sys.executable, "-I", "-S", own, sys.prefix, *folders, module, *arguments]


def locations() -> Iterator[str]:
    """Yield the directories of `PACKAGES`, without importing them."""
    for name in PACKAGES:
        spec = find_spec(name)
        yield from (spec.submodule_search_locations or ()) if spec else ()


def _run(words: list[str]) -> None:
    """Run a module in this process; *words* are the arguments after our file in `command`."""
    # Only paths begin with a slash.
    count = next(at for at, word in enumerate(words) if not word.startswith("/"))
    prefix, *folders = words[:count]
    if prefix != sys.prefix:
        # Without site, Python before 3.14 sets the prefix of the base installation, not that of
        # the virtual environment.
        sys.prefix = sys.exec_prefix = prefix
    sys.path += folders
    sys.argv[1:] = words[count + 1 :]
    runpy.run_module(words[count], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run(sys.argv[1:])
