"""Run a program from memory, where no rule on paths sees it: it is as confined as before.

To run it is allowed: compilers and interpreters of agents do.  What counts is what it may.
"""

import os
import sys
from collections.abc import Callable

from attempt import FACTS, Blocked, attempt, syscall

_MEMFD_CREATE = 319
_NAMESPACE = "import ctypes; print(ctypes.CDLL(None).unshare(0x1000_0000))"
_RING = "import ctypes; print(min(ctypes.CDLL(None).syscall(425, 4, bytes(120)), 0))"
_FILE = "print(open({!r}).read())"


def _interpreter_in_memory() -> int:
    # Inheritable: it is opened again by its number in /proc.
    memory = syscall(_MEMFD_CREATE, b"attack", 0)
    with open(sys.executable, "rb") as file:
        while data := file.read(1 << 20):
            os.write(memory, data)
    return memory


def _output(code: str) -> str:
    """What the interpreter prints that runs from memory."""
    memory = _interpreter_in_memory()
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(theirs, 1)
            # What it is called is where it looks for its library.
            os.execve(memory, [sys.executable, "-IS", "-c", code], {"LC_ALL": "C.UTF-8"})
        finally:
            os._exit(127)
    os.close(theirs)
    with open(ours) as output:
        said = output.read().strip()
    code_or_signal = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code_or_signal:
        raise Blocked(f"it ended with {code_or_signal}")
    return said


def _succeeds(code: str) -> Callable[[], str]:
    def succeeds() -> str:
        said = _output(code)
        if said != "0":
            raise Blocked(f"it got {said}")
        return "what the filter forbids"

    return succeeds


def secret() -> str:
    return _output(_FILE.format(FACTS["secret"]))


attempt({"namespace": _succeeds(_NAMESPACE), "ring": _succeeds(_RING), "secret": secret})
