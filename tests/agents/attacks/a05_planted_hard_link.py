"""Use a hard link to a file outside that was in the workspace before: it belongs to it."""

from attempt import FACTS, attempt


def read() -> str:
    with open(f"{FACTS['workspace']}/planted") as file:
        return file.read()


attempt({"read": read})
