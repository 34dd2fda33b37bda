"""The result of one check of ``agentctl doctor``."""

from typing import Literal

import msgspec

Status = Literal["ok", "warn", "fail"]


class Check(msgspec.Struct, frozen=True):
    """The result of a check; if the status is not ``ok``, also the consequence and the fix.

    ``fix``: one alternative a line, and one of them is enough.  A line holds only what to type,
    and why.
    """

    name: str
    status: Status
    detail: str
    consequence: str = ""
    fix: str = ""
