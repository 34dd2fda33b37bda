"""Where runs and sockets live, and whether those places are safe to use.

`$AGENTCTL_HOME`, else the XDG state directory, holds the runs.  Sockets live in
`$AGENTCTL_HOME/run`, else in the XDG runtime directory, else below ``/run`` or ``/tmp``.
"""

import contextlib
import os
import pwd
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agentctl_protocol.shell_words import shell_word
from agentctl_supervisor.errors import StateDirectoryError
from agentctl_supervisor.filesystem.path_trust import ELSEWHERE, is_trusted

#: sun_path is 108 bytes with its NUL (unix(7)).
MAX_SOCKET_PATH: Final = 107


def state_root(environ: Mapping[str, str]) -> Path:
    """The directory that holds everything about runs; it need not be there yet.

    Directories of another user, which sudo and su may leave in the environment, count for
    nothing unless AGENTCTL_HOME names them: what we made there would be in that user's way.

    Raises:
        StateDirectoryError: the environment names none, and nobody knows a home directory.
    """
    if own := environ.get("AGENTCTL_HOME"):
        return Path(os.path.abspath(own))
    # The XDG specification: a relative path is to be ignored.
    if (state := environ.get("XDG_STATE_HOME", "")).startswith("/") and not _is_anothers(state):
        return Path(state) / "agentctl"
    home = environ.get("HOME", "")
    if not home.startswith("/") or _is_anothers(home):
        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            home = ""
    if not home.startswith("/"):
        raise StateDirectoryError(
            f"no home directory is known for uid {os.geteuid()}",
            "set AGENTCTL_HOME to a directory of yours",
        )
    return Path(home) / ".local" / "state" / "agentctl"


def private_directory(path: Path) -> None:
    """Make *path* and what is missing above it, or see that it is ours alone.

    Raises:
        StateDirectoryError: it cannot be made, or others could put something into it.
    """
    try:
        # The XDG specification wants them private, too.
        for missing in reversed([one for one in (path, *path.parents) if not one.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise StateDirectoryError(f"cannot use {path}: {error.strerror}", ELSEWHERE) from None
    if not stat.S_ISDIR(found.st_mode):
        raise StateDirectoryError(f"cannot use {path}: it is not a directory", ELSEWHERE)
    if found.st_uid != os.geteuid():
        raise StateDirectoryError(f"cannot use {path}: it belongs to uid {found.st_uid}", ELSEWHERE)
    if found.st_mode & 0o022:
        raise StateDirectoryError(
            f"cannot use {path}: others can write into it", f"chmod go-w {shell_word(str(path))}"
        )


def socket_path(environ: Mapping[str, str], name: str) -> str:
    """A path for the socket *name*, short enough to bind, in a directory that is ours alone.

    The directory is made if it is not there.

    Raises:
        StateDirectoryError: no directory can be used.
    """
    directory = runtime_directory(environ)
    path = directory / name
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        import hashlib

        # Told apart by what they stand for, or two homes would share one socket.
        digest = hashlib.blake2b(os.fsencode(directory), digest_size=8).hexdigest()
        directory = _last_resort() / digest
        private_directory(directory.parent)
        path = directory / name
    private_directory(directory)
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise StateDirectoryError(
            f"a socket's path may have {MAX_SOCKET_PATH} bytes: {str(path)[:200]} is longer",
            "set AGENTCTL_HOME to a shorter path",
        )
    return os.fspath(path)


def runtime_directory(environ: Mapping[str, str]) -> Path:
    """The directory for sockets, if their paths are short enough; it need not be there yet."""
    if own := environ.get("AGENTCTL_HOME"):
        return Path(os.path.abspath(own)) / "run"
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and _is_usable(Path(runtime)):
        return Path(runtime) / "agentctl"
    if os.geteuid() == 0 and _is_usable(Path("/run")):
        return Path("/run/agentctl")
    return _last_resort()


def socket_directories(environ: Mapping[str, str]) -> list[Path]:
    """Where sockets of ours may be; none that is somebody else's."""
    found = [runtime_directory(environ), _last_resort()]
    with contextlib.suppress(OSError):
        found += [
            Path(entry) for entry in os.scandir(found[1]) if entry.is_dir(follow_symlinks=False)
        ]
    return [path for path in dict.fromkeys(found) if _is_ours(path)]


def _is_ours(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.geteuid()
    except OSError:
        return False


def _last_resort() -> Path:
    return Path(f"/tmp/agentctl-{os.geteuid()}")


def _is_usable(path: Path) -> bool:
    # After sudo, XDG_RUNTIME_DIR may be another's: what root left there would be in the way.
    try:
        return path.stat().st_uid == os.geteuid() and os.access(path, os.W_OK | os.X_OK)
    except OSError:
        return False


def _is_anothers(path: str) -> bool:
    try:
        return not is_trusted(os.stat(path).st_uid)
    except OSError:
        return False
