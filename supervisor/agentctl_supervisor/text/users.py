"""Names users for records and reports."""

import pwd


def uid_and_name(uid: int) -> str:
    """Return *uid* with the user's name, as in ``0 (root)``; without it if there is none."""
    try:
        return f"{uid} ({pwd.getpwuid(uid).pw_name})"
    except KeyError:
        return str(uid)
