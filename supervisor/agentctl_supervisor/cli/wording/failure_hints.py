"""Guesses from a failed run's last output which restriction may be the cause.  Pure functions."""

import os
import re
from collections.abc import Collection
from typing import Final

from agentctl_protocol.report import Report
from agentctl_protocol.vocabulary import Network, Result
from agentctl_supervisor.policy import protected
from agentctl_supervisor.policy.links import is_beneath

_LAST_WORDS: Final = 1 << 14
_NETWORK_HINT: Final = "the run had no network; --net host gives it yours"
_NO_NETWORK: Final = re.compile(
    r"(?i:network is unreachable|name resolution|name or service not known|no such host"
    r"|could ?n.t resolve|could not resolve|cannot resolve|no address associated"
    r"|connection refused|could not connect|couldn.t connect|failed to connect"
    r"|failed to establish a new connection|nodename nor servname)"
    r"|\b(ENOTFOUND|EAI_AGAIN|ENETUNREACH|ECONNREFUSED|getaddrinfo)\b"
)
"""The error messages of curl, git, Python, Node, Go and the C library."""
_REFUSED: Final = r"(?:Device or resource busy|Read-only file system)"
# To rename a new file over a protected one fails with EBUSY; to write to it fails with EROFS.
_NO_WRITE: Final = re.compile(
    rf"['\"]?([^\s'\"]{{1,4096}}?)['\"]?: {_REFUSED}|{_REFUSED}: ['\"]?([^\s'\"]{{1,4096}})"
)


def hints(report: Report, stderr: bytes, unprotect: Collection[str] = ()) -> list[str]:
    """Return hints that may explain the run's failure; *stderr* is the end of its stderr."""
    if report.result is not Result.FAILED:
        return []
    told = stderr[-_LAST_WORDS:].decode("utf-8", "replace") + "\n" + report.error[-_LAST_WORDS:]
    found = []
    if report.network is Network.NONE and _NO_NETWORK.search(told) is not None:
        found.append(_NETWORK_HINT)
    if name := _protected_name(told, report.workspace.path, unprotect):
        found.append(
            f"{name} is protected, so the run could not change it; what it was doing may be half"
            f" done; --unprotect {name} lets it"
        )
    return found


def _protected_name(told: str, workspace: str, unprotect: Collection[str]) -> str:
    """Return the protected name that the run tried to write to, or an empty string."""
    for match in _NO_WRITE.finditer(told):
        path = os.path.normpath(match[1] or match[2])
        if workspace and is_beneath(path, workspace):
            path = os.path.relpath(path, workspace)
        # Take the innermost name: besides .git/config there is .git, which is protected only if
        # it is a file.
        around = [name for name in protected.names(unprotect) if is_beneath(path, name)]
        if around and (name := max(around, key=len)) != ".git":
            return name
    return ""
