"""Find the directories of runs and sockets, and check that they are safe to use.

Runs are kept in `$AGENTCTL_HOME`, else in the XDG state directory.  Sockets are in
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
    """Return the directory with all files about runs; it need not exist yet.

    Directories of another user, which sudo and su may leave in the environment, are ignored unless
    AGENTCTL_HOME names them: files that we make there would cause trouble for that user.

    Raises:
        StateDirectoryError: the environment names no directory, and no home directory is known.
    """
    if own := environ.get("AGENTCTL_HOME"):
        return Path(os.path.abspath(own))
    # The XDG specification says that a relative path is ignored.
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
    """Make *path* and the missing directories above it, or check that only we can write to *path*.

    Raises:
        StateDirectoryError: it cannot be made, or other users could put something into it.
    """
    try:
        # The XDG specification wants the directories above to be private, too.
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
    """Return a path for the socket *name*, short enough to bind, in a directory only for us.

    The directory is made if it does not exist.

    Raises:
        StateDirectoryError: no directory can be used.
    """
    directory = runtime_directory(environ)
    path = directory / name
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        import hashlib

        # The digest of the directory: without it, two homes would share one socket.
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
    """Return the directory for sockets whose paths are short enough; it need not exist yet."""
    if own := environ.get("AGENTCTL_HOME"):
        return Path(os.path.abspath(own)) / "run"
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and _is_usable(Path(runtime)):
        return Path(runtime) / "agentctl"
    if os.geteuid() == 0 and _is_usable(Path("/run")):
        return Path("/run/agentctl")
    return _last_resort()


def socket_directories(environ: Mapping[str, str]) -> list[Path]:
    """Return the directories that may have our sockets, without those of other users."""
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
    # After sudo, XDG_RUNTIME_DIR may be another user's.  Files of root there would cause trouble
    # for that user.
    try:
        return path.stat().st_uid == os.geteuid() and os.access(path, os.W_OK | os.X_OK)
    except OSError:
        return False


def _is_anothers(path: str) -> bool:
    try:
        return not is_trusted(os.stat(path).st_uid)
    except OSError:
        return False
