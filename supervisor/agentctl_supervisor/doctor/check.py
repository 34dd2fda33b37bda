"""One line of the doctor's page."""

from typing import Literal

import msgspec

Status = Literal["ok", "warn", "fail"]


class Check(msgspec.Struct, frozen=True):
    """What was found; and where it is not well, the consequence and the fix.

    ``fix``: one way a line, each of which would do; only what is to be typed, and why.
    """

    name: str
    status: Status
    detail: str
    consequence: str = ""
    fix: str = ""
