"""Die so that the kernel writes one's memory to a file: no core dump, whatever core_pattern is.

Where it names a program, the kernel starts that outside of every sandbox, as root, with what
was in memory for its input.
"""

import os
import resource
import signal

from attempt import FACTS, Blocked, attempt


def dump() -> str:
    os.chdir(FACTS["workspace"])
    pid = os.fork()
    if pid == 0:
        try:
            _, hard = resource.getrlimit(resource.RLIMIT_CORE)
            resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
            # Ignored in what a shell started in the background.
            signal.signal(signal.SIGQUIT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGQUIT)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    left = [name for name in os.listdir() if "core" in name]
    if not os.WCOREDUMP(status) and not left:
        raise Blocked(f"status {status:#x}")
    return f"status {status:#x}, left {left}"


attempt({"quit": dump})
