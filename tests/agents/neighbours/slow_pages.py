"""Writes from memory that comes slowly, or reads into it: the kernel holds the pipe's lock while
it waits for the page.

VARIANT: ``stdout``, ``stderr``, ``channel`` (writes from a file in memory whose pages are taken
away all the time), ``protect`` (stdout, from memory whose protection changes all the time),
``answers`` and ``stdin`` (reads what it is sent).
"""

import ctypes
import itertools
import mmap
import os
import random
import struct
import threading

from _wire import NEIGHBOURS, READ, VARIANT, WRITE, hello, say, short, up

VARIANTS = ("stdout", "stderr", "channel", "protect", "answers", "stdin")
SPEC = {"stdin": True, "output_bytes": None}
FEED = "stdin"
#: Of the file, and of the map.
SIZE = 8 << 30 if VARIANT == "protect" else max(512, 2048 // NEIGHBOURS) << 20
PAGE = mmap.PAGESIZE
KEEP_SIZE, PUNCH_HOLE = 1, 2
MAP_NORESERVE, MADV_NOHUGEPAGE, MADV_POPULATE_READ = 0x4000, 15, 22
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
for call, arguments in {
    "mmap": "plllll",
    "madvise": "pli",
    "mprotect": "pli",
    "fallocate": "iill",
    "write": "ipl",
    "read": "ipl",
}.items():
    types = {"p": ctypes.c_void_p, "l": ctypes.c_long, "i": ctypes.c_int}
    getattr(LIBC, call).argtypes = [types[letter] for letter in arguments]


def fallocate(file: int, mode: int) -> None:
    LIBC.fallocate(file, mode, 0, SIZE)


def with_holes() -> int:
    """Who needs a page of it waits for the hole that is being punched."""
    file = os.memfd_create("holes")
    os.ftruncate(file, SIZE)

    def punch() -> None:
        while True:
            fallocate(file, KEEP_SIZE)
            fallocate(file, KEEP_SIZE | PUNCH_HOLE)

    threading.Thread(target=punch, daemon=True).start()
    return mapped(SIZE, mmap.MAP_SHARED, file)


def with_changing_protection() -> int:
    """Who needs a page of it waits for the map, whose table has millions of entries."""
    area = mapped(SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE, -1)
    LIBC.madvise(area, SIZE, MADV_NOHUGEPAGE)
    LIBC.madvise(area, SIZE, MADV_POPULATE_READ)

    def change() -> None:
        while True:
            LIBC.mprotect(area, SIZE, mmap.PROT_READ)
            LIBC.mprotect(area, SIZE, mmap.PROT_READ | mmap.PROT_WRITE)

    threading.Thread(target=change, daemon=True).start()
    return area


def mapped(size: int, flags: int, file: int) -> int:
    return int(LIBC.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, file, 0))


AREA = with_changing_protection() if VARIANT == "protect" else with_holes()


def page() -> int:
    """One that is not there."""
    at = AREA + random.randrange(SIZE // PAGE) * PAGE
    if VARIANT == "protect":
        LIBC.madvise(at, PAGE, mmap.MADV_DONTNEED)
    return at


def write() -> None:
    while True:
        LIBC.write(2 if VARIANT == "stderr" else 1, page(), 8)


def say_from_pages() -> None:
    """Events whose text is the zeros that such a page has."""
    for number in itertools.count(1):
        event = b"\x82\xa4type\xa4text\xa4text\xdb" + struct.pack(">I", PAGE)
        first = b"\xce" + struct.pack(">I", number)
        head = short({"type": "events", "first": first, "events": b"\x91" + event})
        os.write(WRITE, struct.pack(">I", len(head) + PAGE) + head)
        left = PAGE
        while left > 0:
            left -= LIBC.write(WRITE, page(), left)


def ask() -> None:
    for number in itertools.count(1):
        say(type="ask", call=f"{number:x}", kind="tool", name="x")


up()
if VARIANT == "stdin":
    while LIBC.read(0, page(), PAGE):
        pass
elif VARIANT == "channel":
    hello()
    say_from_pages()
elif VARIANT == "answers":
    hello(reads=False)
    threading.Thread(target=ask, daemon=True).start()
    while LIBC.read(READ, page(), PAGE):
        pass
for _ in range(3):
    threading.Thread(target=write, daemon=True).start()
write()
