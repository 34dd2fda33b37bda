"""An interpreter, wherever it is installed, with its libraries: the prefix is the argument."""

import importlib
import subprocess
import sys

MODULES = (
    *("bz2", "ctypes", "curses", "dbm", "decimal", "hashlib", "json", "lzma", "socket", "sqlite3"),
    *("ssl", "unittest", "uuid", "xml.parsers.expat", "zlib", "zoneinfo"),
)


def main() -> None:
    for name in MODULES:
        importlib.import_module(name)
    prefix = sys.argv[1]
    assert sys.prefix == prefix, sys.prefix
    program = "import sys; print(sys.prefix)"
    said = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    assert said.stdout == f"{prefix}\n", said.stdout
    print("all of it works")


if __name__ == "__main__":
    main()
