"""Records which lines of agentctl run, in memory that all its processes share.

`measured_copy` puts this module into the protocol's package of a copy of the tree, where the first
line of each package imports it.  A usual tracer writes what it knows to a file when its process
exits, and most of ours never do: keepers leave by ``_exit``, are killed, or no longer see the file
system that they came from.  A byte in a shared mapping is kept whatever becomes of its writer.
"""

import contextlib
import mmap
import os
import sys
from pathlib import Path
from typing import Any, Final

_PACKAGES: Final = ("/agentctl_protocol/", "/agentctl_child/", "/agentctl_supervisor/")
_HERE: Final = Path(__file__)

if sys.version_info >= (3, 13):  # the first with a mapping that keeps no descriptor

    def start() -> None:
        """Record from now on, in this process and all that it forks."""
        # Which file's lines begin where.  Made with the copy, so that all processes agree.
        index = _HERE.with_suffix(".index").read_text()
        offsets = {name: int(offset) for offset, name in map(str.split, index.splitlines())}
        descriptor = os.open(_HERE.with_suffix(".lines"), os.O_RDWR | os.O_CLOEXEC)
        # A descriptor of the mapping's own would be closed in a run, and its number used again.
        lines = mmap.mmap(descriptor, 0, trackfd=False)
        os.close(descriptor)

        def record(code: Any, line: int) -> object:
            place = max(code.co_filename.rfind(package) for package in _PACKAGES)
            if place >= 0 and (offset := offsets.get(code.co_filename[place + 1 :])) is not None:
                lines[offset + line] = 1
            return sys.monitoring.DISABLE  # once in each process is enough

        monitoring = sys.monitoring
        monitoring.use_tool_id(monitoring.COVERAGE_ID, "agentctl")
        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, record)
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)

    # An interpreter that is started inside a sandbox does not see the files: it is not measured.
    with contextlib.suppress(OSError):
        start()
