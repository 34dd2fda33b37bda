"""Open a device node that was in the workspace before: refused (nodev)."""

import os

from attempt import FACTS, attempt, only_root


def use(name: str) -> None:
    only_root()
    os.close(os.open(f"{FACTS['workspace']}/{name}", os.O_RDONLY))


attempt({"character": lambda: use("character")})
