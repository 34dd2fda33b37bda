"""Change the interpreter, agentctl's code or the run's own code: read-only."""

import os
import sys

from attempt import FACTS, attempt, only_root


def writable(path: str) -> None:
    only_root()
    os.close(os.open(path, os.O_WRONLY))


def made_beside(path: str) -> None:
    only_root()
    made = f"{os.path.dirname(path)}/made-by-attack-{os.getpid()}"
    os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    os.unlink(made)


ITSELF = os.path.abspath(sys.argv[0])

attempt(
    {
        "library": lambda: writable(os.__file__),
        "beside a library": lambda: made_beside(os.__file__),
        "beside the interpreter": lambda: made_beside(sys.executable),
        "itself": lambda: writable(ITSELF),
        "beside itself": lambda: made_beside(ITSELF),
        "agentctl": lambda: writable(FACTS["agentctl"]),
        "beside agentctl": lambda: made_beside(FACTS["agentctl"]),
    }
)
