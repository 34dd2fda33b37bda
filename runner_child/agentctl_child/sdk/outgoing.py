"""The conversion of values from the agent's code into the form of the wire.

All checks happen here, in the caller's own thread and before anything is queued. A mistake is
therefore a `ValueError` at the caller's line, and never an illegal frame that ends the run.
"""

from typing import Any, Final

import msgspec

from agentctl_protocol.errors import LocalProtocolError
from agentctl_protocol.framing import MAX_FRAME
from agentctl_protocol.os_names import to_text
from agentctl_protocol.values import MAX_NESTING, pack_value

#: Bytes of a message besides its long text or value: names, notes, an error's text.
OVERHEAD: Final = 1 << 14
MAX_LABEL: Final = 256
MAX_NOTE: Final = 4096
MAX_LOG_LINE: Final = 1 << 16
MAX_TEXT_PIECE: Final = 1 << 16
_MAX_INT: Final = (1 << 63) - 1


class Limits:
    """The sizes that fit into one frame."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.max_frame = min(max_frame, MAX_FRAME)
        #: Maximum bytes of the long text or value of one message.
        self.payload = self.max_frame - min(OVERHEAD, self.max_frame // 4)
        #: Characters of one text event: at most 256 KiB and a quarter of a frame.
        self.piece = max(16, min(MAX_TEXT_PIECE, self.payload // 16))

    def __repr__(self) -> str:
        return f"<Limits {self.max_frame} bytes a frame>"


def weight_of(*texts: str) -> int:
    """Return an upper bound of the bytes that an event with these texts takes."""
    return 128 + 4 * sum(map(len, texts))


def clean(text: object, what: str) -> str:
    """Return *text*, with characters that UTF-8 cannot encode replaced.

    Raises:
        ValueError: *text* is not a string.
    """
    if not isinstance(text, str):
        # One class of error for every invalid argument.
        raise ValueError(  # noqa: TRY004
            f"{what} is a str, not {type(text).__name__}"
        )
    if text.isascii():
        return str(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        # By way of UTF-16: there a pair of surrogates is one character and a lone surrogate is
        # invalid.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return str(text)


def label(text: object, what: str, *, empty: bool = True, longest: int = MAX_LABEL) -> str:
    """Return *text* as a short label.

    Raises:
        ValueError: *text* is not a string, is longer than *longest*, or is empty and may not
            be.
    """
    cleaned = clean(text, what)
    if len(cleaned) > longest:
        raise ValueError(f"{what} is {len(cleaned)} characters long: at most {longest}")
    if not cleaned and not empty:
        raise ValueError(f"{what} is empty")
    return cleaned


def path(given: object) -> str:
    """Return the name of a file, in its text form (`os_names`).

    Raises:
        ValueError: it is not a string, stands for no name, is empty or too long.
    """
    if isinstance(given, str):
        try:
            given = to_text(given)
        except UnicodeEncodeError:
            raise ValueError(f"path is no path: {given[:80]!r}") from None
    return label(given, "path", empty=False, longest=MAX_NOTE)


def shortened(text: object, what: str, longest: int) -> str:
    """Return *text*, cut to *longest* characters with a mark; for texts that only people read."""
    cleaned = clean(text, what)
    if len(cleaned) <= longest:
        return cleaned
    mark = f" ... [{len(cleaned)} characters]"
    return cleaned[: max(0, longest - len(mark))] + mark


def count(number: object, what: str) -> int:
    """Return *number* as a count.

    Raises:
        ValueError: it is not an int between 0 and 2**63 - 1.
    """
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _MAX_INT:
        raise ValueError(f"{what} is a whole number from 0 on, not {number!r}"[:200])
    return int(number)


def amount(number: object, what: str) -> float:
    """Return *number* as a finite float.

    Raises:
        ValueError: it is not a finite number.
    """
    if isinstance(number, (int, float)):
        try:
            value = float(number)
        except OverflowError:
            value = float("inf")
        if abs(value) < float("inf"):
            return value
    raise ValueError(f"{what} is a finite number, not {number!r}"[:200])


def choice(word: object, what: str, words: tuple[str, ...]) -> str:
    """Return *word*, one of *words*.

    Raises:
        ValueError: *word* is not one of them.
    """
    if word not in words:
        raise ValueError(f"{what} is one of {', '.join(words)}, not {word!r}"[:200])
    return str(word)


def value(given: object, what: str) -> msgspec.Raw:
    """Return the wire form of *given*, which must be a value that JSON can represent.

    Raises:
        ValueError: it is not; the text names the type at fault.
    """
    try:
        return pack_value(given)
    except LocalProtocolError as error:
        try:
            return pack_value(_cleaned(msgspec.to_builtins(given, str_keys=True), 0))
        except (LocalProtocolError, TypeError, ValueError, OverflowError, RecursionError):
            raise ValueError(f"{what} is {error}") from None


def fitting(raw: msgspec.Raw, limits: Limits) -> msgspec.Raw:
    """Return *raw*, or a note in its place if it is too big for a frame.

    This is for the data of a call: the call itself must not fail because its request is long.
    """
    size = len(memoryview(raw))
    if size <= limits.payload:
        return raw
    return pack_value({"omitted": "too big for a message", "bytes": size, "limit": limits.payload})


def _cleaned(plain: Any, depth: int) -> Any:
    if depth > MAX_NESTING:
        raise RecursionError
    if isinstance(plain, str):
        return clean(plain, "text")
    if isinstance(plain, dict):
        return {_cleaned(k, depth): _cleaned(v, depth + 1) for k, v in plain.items()}
    if isinstance(plain, (list, tuple)):
        return [_cleaned(item, depth + 1) for item in plain]
    return plain
