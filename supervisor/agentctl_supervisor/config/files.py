"""Find and read configuration files.

The project's file lies where runs may write, or it came with a repository of another person.  So
its size is bounded, and reading it cannot block.  `trust` decides what it may ask for.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from agentctl_protocol.shell_words import shell_word
from agentctl_supervisor.errors import UsageError, in_words

NAME: Final = "agentctl.toml"
PYPROJECT: Final = "pyproject.toml"
MAX_BYTES: Final = 1 << 20

_LONGEST_KEY: Final = 16
# tomllib stores each prefix of a dotted key, so that 256 KiB of "a.a.a." need more memory than a
# machine has.  The pattern is possessive and starts only at the begin of a word, so its time is
# linear in the length of the text.
_LONG_KEY: Final = (
    r"(?<![\w-])(?:(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')[ \t]*+\.[ \t]*+)"
    f"{{{_LONGEST_KEY}}}"
)
_IGNORE: Final = "-p none uses no configuration file"


class ConfigFile(msgspec.Struct, frozen=True):
    """A configuration file as it was found.

    ``path``: its absolute path.  ``shown``: its path for messages.
    ``table``: its content, not checked.
    ``prefix``: the tables around ``table`` (``tool.agentctl.`` or empty).
    ``doubt``: the reason not to believe the file, or empty.
    """

    path: str
    shown: str
    table: dict[str, Any]
    text: str = ""
    prefix: str = ""
    doubt: str = ""

    @property
    def directory(self) -> str:
        """The directory that relative paths in the file start from."""
        return os.path.dirname(self.path)

    def at(self, table: str, key: str) -> str:
        """Return ``agentctl.toml:3``: the file and, if it is easily found, the line of *key*."""
        inside = ""
        wanted = (self.prefix + table).strip(".")
        pattern = re.compile(rf"[ \t]*[\"']?{re.escape(key)}[\"']?[ \t]*[=.\]]")
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := re.match(r"[ \t]*\[+([^\[\]]+)\]", line):
                inside = re.sub(r"[ \t\"']", "", header[1])
                if inside == f"{wanted}.{key}".strip("."):
                    return f"{self.shown}:{number}"
            elif inside == wanted and pattern.match(line):
                return f"{self.shown}:{number}"
        return self.shown


def find_project(cwd: str, environ: Mapping[str, str]) -> ConfigFile | None:
    """Return the nearest file of the project that *cwd* is in, or None.

    Raises:
        UsageError: the file cannot be used.
    """
    for directory in project_directories(cwd, home_directory(environ)):
        shown = os.path.relpath(os.path.join(directory, NAME), cwd)
        shown = shown if shown.startswith("..") else f"./{shown}"
        if (found := _own_file(directory, shown)) is not None:
            return found
        if (found := _pyproject(directory, shown.removesuffix(NAME) + PYPROJECT)) is not None:
            return found
    return None


def passed_over(cwd: str, environ: Mapping[str, str], found: ConfigFile | None) -> str:
    """Return a message why a file further up does not count in *cwd*, where *found* counts.

    The result is empty if there is no file further up.  A run may have made what hides the file:
    a repository or a settings file in a directory of its workspace.
    """
    ended_by = ""
    with contextlib.suppress(UsageError):
        for directory in _upwards(cwd, home_directory(environ)):
            if ended_by and (above := _settings_in(directory)):
                return f"{os.path.relpath(above, cwd)} does not hold here: {ended_by}"
            if not ended_by and found is not None and found.directory == directory:
                ended_by = f"{found.shown} is nearer"
            elif not ended_by and _is_root(directory):
                root = os.path.relpath(directory, cwd)
                ended_by = f"a repository begins at {'this directory' if root == '.' else root}"
    return ""


def _settings_in(directory: str) -> str:
    """Return the path of the settings file in *directory* that would count there, or empty."""
    if os.path.lexists(own := os.path.join(directory, NAME)):
        return own
    with contextlib.suppress(UsageError):
        if (file := _pyproject(directory, PYPROJECT)) is not None:
            return file.path
    return ""


def find_user(environ: Mapping[str, str]) -> ConfigFile | None:
    """Return the user's own file, or None.

    Raises:
        UsageError: the file cannot be used, or other users could have written it.
    """
    path = user_path(environ)
    if path is None:
        return None
    shown = shown_path(path, environ)
    # Links are followed: many users keep such files elsewhere, and no other user can make a link
    # here.
    read = _read(path, shown, follow=True)
    if read is None:
        return None
    data, status = read
    if status.st_uid not in (0, os.geteuid()):
        raise UsageError(f"{shown} belongs to uid {status.st_uid}, not to you", hint=_IGNORE)
    if status.st_mode & 0o022:
        raise UsageError(
            f"{shown}: others can write into it", hint=f"chmod go-w {shell_word(path)}"
        )
    text = _decoded(data, shown)
    return ConfigFile(path, shown, parse(text, shown), text)


def user_path(environ: Mapping[str, str]) -> str | None:
    """Return the path of the user's own file; None if no home directory is known.

    The file need not exist.
    """
    # The XDG specification says that a relative path is ignored.
    base = environ.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):
        home = home_directory(environ)
        if home is None:
            return None
        base = os.path.join(home, ".config")
    return os.path.join(base, "agentctl", "config.toml")


def home_directory(environ: Mapping[str, str]) -> str | None:
    """Return the home directory from *environ* or the user database; None if neither has it."""
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        import pwd

        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            return None
    return os.path.normpath(home) if home.startswith("/") else None


def shown_path(path: str, environ: Mapping[str, str]) -> str:
    """Return *path* with ``~`` in place of the home directory."""
    home = home_directory(environ)
    if home is not None and home != "/" and path.startswith(home + "/"):
        return "~" + path[len(home) :]
    return path


def project_directories(cwd: str, home: str | None) -> Iterator[str]:
    """Yield *cwd* and the directories above it that its project may include, the nearest first.

    The last one is the root of a Git working tree, or the home directory.  Directories above the
    home directory, of another user, or writable for everybody are left out.

    Raises:
        UsageError: a directory cannot be examined.
    """
    for directory in _upwards(cwd, home):
        yield directory
        if _is_root(directory):
            return


def _is_root(directory: str) -> bool:
    return os.path.lexists(os.path.join(directory, ".git"))


def _upwards(cwd: str, home: str | None) -> Iterator[str]:
    """Yield the same as `project_directories`, but go on above the root of the working tree."""
    directory = cwd
    owners = _owners()
    while True:
        if home is not None and home.startswith(directory.rstrip("/") + "/"):
            return
        if directory != cwd:
            try:
                status = os.stat(directory)
            except FileNotFoundError:
                return
            except OSError as error:
                raise UsageError(
                    f"cannot look for {NAME} in {directory}: {in_words(error)}", hint=_IGNORE
                ) from None
            if status.st_uid not in owners or status.st_mode & 0o002:
                return
        yield directory
        above = os.path.dirname(directory)
        if directory in (home, above):
            return
        directory = above


def parse(text: str, shown: str) -> dict[str, Any]:
    """Parse the TOML *text*.  The worst case takes seconds and some hundred MB.

    Raises:
        UsageError: *text* is not TOML.
    """
    if (long := re.search(_LONG_KEY, text)) is not None:
        line = text.count("\n", 0, long.start()) + 1
        raise UsageError(f"{shown}:{line}: a key of more than {_LONGEST_KEY} parts", hint=_IGNORE)
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", str(error), re.DOTALL)
        told = f"{shown}:{where[2]}: {where[1]}" if where else f"{shown}: {error}"
        raise UsageError(told[:300], hint=_IGNORE) from None
    except RecursionError:
        raise UsageError(f"{shown}: nested too deeply", hint=_IGNORE) from None
    except ValueError as error:  # for example a number with 5,000 digits
        raise UsageError(f"{shown}: {error}"[:300], hint=_IGNORE) from None


def _own_file(directory: str, shown: str) -> ConfigFile | None:
    path = os.path.join(directory, NAME)
    read = _read(path, shown, follow=False)
    if read is None:
        return None
    data, status = read
    text = _decoded(data, shown)
    return ConfigFile(path, shown, parse(text, shown), text, doubt=_doubt(status))


def _pyproject(directory: str, shown: str) -> ConfigFile | None:
    """Return the ``pyproject.toml`` in *directory* if it has a table for agentctl, else None.

    A file without the word "agentctl" is not parsed, so that its errors do not matter.
    """
    path = os.path.join(directory, PYPROJECT)
    read = _read(path, shown, follow=True)
    if read is None or b"agentctl" not in read[0]:
        return None
    data, status = read
    text = _decoded(data, shown)
    tool = parse(text, shown).get("tool")
    table = tool.get("agentctl") if isinstance(tool, dict) else None
    if table is None:
        return None
    if not isinstance(table, dict):
        raise UsageError(f"{shown}: tool.agentctl is not a table", hint="[tool.agentctl]")
    if os.path.islink(path):
        raise UsageError(f"{shown} is a symbolic link", hint=f"{_IGNORE}; or keep a {NAME}")
    return ConfigFile(path, shown, table, text, "tool.agentctl.", _doubt(status))


def _read(path: str, shown: str, *, follow: bool) -> tuple[bytes, os.stat_result] | None:
    """Return the content and the status of a regular file; None if it does not exist."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK  # do not wait for a FIFO
    try:
        fd = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        why = in_words(error)
        if not follow and os.path.islink(path):
            why = "it is a symbolic link"
        raise UsageError(f"cannot read {shown}: {why}", hint=_IGNORE) from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"cannot read {shown}: it is not a file", hint=_IGNORE)
        with open(fd, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {shown}: {in_words(error)}", hint=_IGNORE) from None
    finally:
        os.close(fd)
    if len(data) > MAX_BYTES:
        raise UsageError(f"{shown} is longer than {MAX_BYTES >> 20} MiB", hint=_IGNORE)
    return data, status


def _decoded(data: bytes, shown: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{shown}:{line}: not UTF-8", hint=_IGNORE) from None


def _doubt(status: os.stat_result) -> str:
    if status.st_uid not in _owners():
        return f"it belongs to uid {status.st_uid}"
    return "everybody can write into it" if status.st_mode & 0o002 else ""


def _owners() -> set[int]:
    """Return the uids whose project files are read, as git does for ``safe.directory``."""
    owners = {0, os.geteuid()}
    if os.geteuid() == 0 and (caller := os.environ.get("SUDO_UID", "")).isdecimal():
        owners.add(int(caller))
    return owners
