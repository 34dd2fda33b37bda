"""The check that names of tools and models are what they look like.

The author of a rule about calls sees names. A name can look like ``shell`` and be another one: by
a letter of another script, a blank at its end, or a character without width. Such a name would
pass a rule about ``shell``, and would mislead the person who is asked to approve the call.
"""

from typing import Final

from agentctl_protocol.visible_text import is_visible

_BESIDE_LATIN: Final = frozenset(
    {
        *("LATIN", "CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "BOPOMOFO", "HANGUL"),
        *("THAI", "DEVANAGARI", "BENGALI", "TAMIL", "TELUGU", "GEORGIAN"),
    }
)
_ALONE: Final = frozenset({"CYRILLIC", "GREEK", "ARMENIAN", "HEBREW", "ARABIC"})
"""Scripts with letters that look like others', or that are written from right to left."""
_LATIN_LETTERS: Final = frozenset("ßæœøþðđħıĸłŋŧəƒ")
"""Latin letters of today's alphabets that are more than an ASCII letter with marks."""

_LOOK_ALIKES: Final = {
    "АВЕЅІЈКМНОРСТУХаеѕіјкмнорстухһԁԛԝӀӏьгпиѵүзв": "ABESIJKMHOPCTYXaesijkmhopctyxhdqwiibrnuvy3b",
    "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαβγεηικνορςστυχωπμ": "ABEZHIKMNOPTYXabyenikvopsotuxwnu",
    "օսոհյցզլաՕՍ": "ounhjgqiwOU",
    "ıøłđħŧəƒ": "ioidhtef",
    "I1l0": "iiio",
}
_TO_LOOKS: Final = str.maketrans(
    {
        char: look
        for chars, looks in _LOOK_ALIKES.items()
        for char, look in zip(chars, looks, strict=True)
    }
)


def oddity(name: str) -> str:
    """Return why *name* is not what it looks like; empty if it is."""
    if not is_visible(name):
        return "a character in it cannot be seen"
    if not name or name != name.strip() or "  " in name:
        return "a blank at an end of it, or two in a row, cannot be seen"
    return "" if name.isascii() else _beyond_ascii(name)


def skeleton(text: str) -> str:
    """Return the look of *text*: without capitals, marks, and letters and digits that look alike.

    It is for rules that forbid: such a rule applies to every name that looks the same.
    """
    if text.isascii():
        return text.translate(_TO_LOOKS).lower().translate(_TO_LOOKS)
    from unicodedata import category, normalize

    looks = normalize("NFKD", text).translate(_TO_LOOKS)
    folded = normalize("NFKD", looks.casefold()).translate(_TO_LOOKS)
    return "".join(c for c in folded if category(c)[0] != "M" and is_visible(c))


def _beyond_ascii(name: str) -> str:
    import unicodedata

    if unicodedata.normalize("NFKC", name) != name:
        return "it has characters in a compatibility form (NFKC)"
    scripts: set[str] = set()
    for char in name:
        kind = unicodedata.category(char)
        if kind[0] == "M" or (char.isascii() and not char.isalpha()):
            continue
        if kind[0] != "L" and kind != "Nd":
            return "it has signs beyond ASCII that are neither letters nor digits"
        words = unicodedata.name(char, "").removeprefix("EXTENDED ").replace("-", " ").split()
        script = words[0] if words else ""
        if script == "LATIN" and not _is_letter_of_today(char):
            return "it has Latin letters that no alphabet of today has"
        scripts.add(script)
    if scripts - _BESIDE_LATIN - _ALONE:
        return "it has letters of a script that is not known here"
    if len(scripts) > 1 and scripts & _ALONE:
        return "it has letters of several scripts that look alike or run in both directions"
    return ""


def _is_letter_of_today(char: str) -> bool:
    from unicodedata import decomposition, normalize

    low = char.lower()
    base = normalize("NFD", low)[0] if decomposition(low) else low
    return base.isascii() or base in _LATIN_LETTERS
