"""Three processes of which two are stopped by SIGSTOP: no signal but SIGKILL reaches them.

One is in the root's session, one in its own.
"""

import os
import signal

from membership import Tree, stay_or_leave

tree = Tree()
children = []


def end(_number: int, _frame: object) -> None:
    """The alarm's work: a stopped process never sees its own."""
    for child in children:
        os.kill(child, signal.SIGKILL)  # ours and not waited for, so the number is still its own
    os._exit(0)


for role in ("stopped", "stopped_session"):
    pid = os.fork()
    if pid == 0:
        if role == "stopped_session":
            os.setsid()
        tree.up(role)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    children.append(pid)
    os.waitpid(pid, os.WUNTRACED)  # returns when it is stopped, not when it says so

tree.wait_for(2)
tree.up("root")
signal.signal(signal.SIGALRM, end)
stay_or_leave()
