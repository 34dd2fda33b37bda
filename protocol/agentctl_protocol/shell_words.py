"""Words of commands that are offered for copying into a shell.

A name in such a command may be anybody's choice: it must come out of the shell as the one word
that it is, and do nothing to the terminal that shows it.
"""

import os
from collections.abc import Iterable
from typing import Final

_ESCAPES: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "'": "\\'", "\\": "\\\\"}


def shell_word(text: str | bytes) -> str:
    """*text* as one word of a shell, in printable characters only.

    What is not printable is written as bytes in ``$'...'`` (POSIX.1-2024; bash, zsh and ksh).
    """
    import shlex

    word = os.fsdecode(text)
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_escaped, word))}'"


def shell_words(texts: Iterable[str | bytes]) -> str:
    """*texts* as the words of one command."""
    return " ".join(map(shell_word, texts))


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    # A byte that is not UTF-8 is itself; other surrogates are no part of any name.
    lone = "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass"
    # Always three digits: what follows may be one.
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", lone))
