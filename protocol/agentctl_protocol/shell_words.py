"""The words of commands that are offered for copying into a shell.

Any person or program may have chosen a name in such a command. The shell must read it as the one
word that it is, and it must not affect the terminal that shows it.
"""

import os
from collections.abc import Iterable
from typing import Final

_ESCAPES: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "'": "\\'", "\\": "\\\\"}


def shell_word(text: str | bytes) -> str:
    """Return *text* as one word of a shell, in printable characters only.

    A word that is not printable is written with bytes in ``$'...'`` (POSIX.1-2024; bash, zsh and
    ksh).
    """
    import shlex

    word = os.fsdecode(text)
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_escaped, word))}'"


def shell_words(texts: Iterable[str | bytes]) -> str:
    """Return *texts* as the words of one command."""
    return " ".join(map(shell_word, texts))


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    # A byte that is not UTF-8 is written as itself; other surrogates are not part of any name.
    lone = "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass"
    # Always three digits: the next character may be a digit, too.
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", lone))
