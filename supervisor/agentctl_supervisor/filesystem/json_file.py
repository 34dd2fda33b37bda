"""Read and write the JSON files of a run: writes are atomic, and reads are bounded.

A file appears under its name only after all of it is written, so a reader never gets half of it.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from agentctl_protocol.errors import UNREADABLE
from agentctl_supervisor.errors import DamagedRunError, in_words

_T = TypeVar("_T")

_READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def read_json(path: Path, kind: type[_T], max_bytes: int) -> _T | None:
    """Return the *kind* in the file, or None if there is no such file.

    Raises:
        DamagedRunError: it cannot be read, is longer than *max_bytes*, or is not a *kind*.
    """
    try:
        fd = os.open(path, _READ_FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        with open(fd, "rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(data) > max_bytes:
        raise _damaged(path, f"longer than {max_bytes:,} bytes")
    try:
        return decode_json(data, kind)
    except (ValueError, *UNREADABLE) as error:
        raise _damaged(path, " ".join(str(error).split())[:200] or type(error).__name__) from None


def write_new_json(path: Path, value: object, *, durable: bool = True) -> bool:
    """Write *value* to a new file; return False if a file with this name already exists.

    With *durable*, the content and the name are on the disk when this function returns.

    Raises:
        OSError: it cannot be written.  No part of it is left.
    """
    data = encode_json(value)
    with _temporary(path, data, durable=durable) as temporary:
        try:
            # link(2), unlike rename(2), never replaces an existing file.
            os.link(temporary, path)
        except FileExistsError:
            return False
    if durable:
        sync_directory(path.parent)
    return True


def sync_directory(path: Path) -> None:
    """Write the names in the directory *path* to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _temporary(path: Path, data: bytes, *, durable: bool) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    fd = os.open(temporary, _WRITE_FLAGS, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(fd)
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def encode_json(value: object) -> bytes:
    """Encode *value* as JSON, also if a text in it is not UTF-8."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # An argument or path that is not UTF-8 is a str with lone surrogates in Python (PEP
        # 383).  msgspec refuses those; the standard library writes them as escapes.
        import json

        text = json.dumps(msgspec.to_builtins(value, str_keys=True))
        # NaN becomes null, as in msgspec, because JSON has no NaN.
        return json.dumps(json.loads(text, parse_constant=lambda _: None)).encode()


def decode_json(data: bytes, kind: type[_T]) -> _T:
    """Decode *data*, which `encode_json` made, to a *kind*.

    Raises:
        ValueError, UNREADABLE: *data* is something else.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if b"\\ud" not in data:
            raise
    import json

    return msgspec.convert(json.loads(data), type=kind)


def _unreadable(path: Path, error: OSError) -> DamagedRunError:
    """Return the error for a file that may be intact; its hint does not say to remove the run."""
    return DamagedRunError(f"{path} cannot be read: {in_words(error)}", "look at the file")


def _damaged(path: Path, why: str) -> DamagedRunError:
    return DamagedRunError(f"{path} is damaged: {why}", "restore the file, or remove the run")
