"""Leases on, or notices of, all files that it can open: whoever opens one next waits, or the
run is told.

VARIANT: ``write`` and ``read`` (F_SETLEASE), ``notify`` (F_NOTIFY), ``delegation``.
"""

import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator

from _wire import VARIANT, up

VARIANTS = ("write", "read", "notify", "delegation")
F_SETDELEG = 1024 + 16


def files() -> Iterator[str]:
    """Of the workspace, of git's, and of agentctl's installation, as far as they are seen."""
    for name in (".git/config", ".git/HEAD", "agentctl.toml", ".gitmodules"):
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        try:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT, 0o644))
        except OSError:
            continue
        yield name
    for top in os.environ.get("AGENTCTL_TEST_INSTALLATION", "").split(":"):
        for above, _, names in os.walk(top):
            yield from (os.path.join(above, name) for name in names)


signal.signal(signal.SIGIO, signal.SIG_IGN)
taken = []
for path in files():
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        continue
    try:
        if VARIANT == "write":
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        elif VARIANT == "read":
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        elif VARIANT == "delegation":
            fcntl.fcntl(descriptor, F_SETDELEG, b"\0\0\0\0\0\0\0\0")
        else:
            parent = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
            fcntl.fcntl(parent, fcntl.F_NOTIFY, fcntl.DN_ACCESS | fcntl.DN_MULTISHOT)
        taken.append(descriptor)
    except OSError as error:
        os.close(descriptor)
        sys.stderr.write(f"{path}: {error}\n")
    if len(taken) > 400:
        break
up(f"{len(taken)} files")
time.sleep(1000)
