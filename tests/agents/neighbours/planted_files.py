"""Puts files where we, or git, or the next run's start would open them.

VARIANT: ``fifos``, ``sockets``, ``loops`` (links to themselves), ``large`` (sparse files of 1 TiB),
``directories``.
"""

import os
import socket
import time

from _wire import VARIANT, hello, say, up

VARIANTS = ("fifos", "sockets", "loops", "large", "directories")
NAMES = (
    "agentctl.toml",
    ".agentctl",
    ".git/config",
    ".git/HEAD",
    ".git/commondir",
    ".git/gitdir",
    ".git/config.worktree",
    ".git/index",
    ".gitmodules",
    ".gitattributes",
    ".gitignore",
    ".envrc",
    "pyproject.toml",
    "pyvenv.cfg",
    "setup.cfg",
    "package.json",
    "conftest.py",
    "sitecustomize.py",
    "__init__.py",
    "python.pth",
    "sub/.git",
    "modules/.git/config",
    "artifact",
)

planted = 0
for name in NAMES:
    try:
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        match VARIANT:
            case "fifos":
                os.mkfifo(name)
            case "sockets":
                with socket.socket(socket.AF_UNIX) as made:
                    made.bind(name)
            case "loops":
                os.symlink(os.path.basename(name), name)
            case "large":
                with open(name, "wb") as file:
                    file.truncate(1 << 40)
            case "directories":
                os.makedirs(name)
        planted += 1
    except OSError:
        continue
hello()
say(type="events", first=1, events=[{"type": "artifact", "path": name} for name in NAMES])
up(f"{planted} of {len(NAMES)}")
time.sleep(1000)
