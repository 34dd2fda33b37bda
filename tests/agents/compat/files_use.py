"""Files of all kinds: temporary ones, links, locks, attributes, watches, fast copies, mappings."""

import ctypes
import errno
import fcntl
import mmap
import os
import select
import shutil
import stat
import struct
import tempfile
from pathlib import Path

IN_CREATE = 0x100


def temporary() -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
        file.flush()
        assert Path(file.name).read_bytes() == b"x"
    with tempfile.TemporaryFile(dir=".") as unnamed:  # O_TMPFILE, where there is
        unnamed.write(b"x")
    made = tempfile.mkdtemp()
    assert stat.S_IMODE(os.stat(made).st_mode) == 0o700
    Path(made, "file").write_text("moved")
    shutil.move(os.path.join(made, "file"), "moved")  # from one file system to another
    assert Path("moved").read_text() == "moved"
    shutil.rmtree(made)
    for directory in ("/tmp", "/var/tmp", "/dev/shm", os.environ["HOME"], os.environ["TMPDIR"]):
        with tempfile.NamedTemporaryFile(dir=directory):
            pass


def names_and_modes() -> None:
    Path("file").write_text("text")
    os.link("file", "hard")
    os.symlink("file", "soft")
    os.rename("hard", "renamed")
    os.chmod("file", 0o600)
    os.utime("file", (1, 1))
    found = os.stat("renamed")
    assert (found.st_nlink, found.st_mtime, stat.S_IMODE(found.st_mode)) == (2, 1, 0o600)
    assert found.st_uid == os.getuid()
    assert os.readlink("soft") == "file"
    os.mkdir("directory", 0o755)
    Path("directory/file").touch()
    shutil.copytree("directory", "/tmp/copy")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as own:
        os.mkfifo(f"{own}/fifo")
    shutil.rmtree("directory")
    assert shutil.disk_usage(".").free > 0
    os.umask(0o077)
    with open("private", "w", encoding="utf-8"):
        pass
    assert stat.S_IMODE(os.stat("private").st_mode) == 0o600


def locks() -> None:
    with open("lock", "w", encoding="utf-8") as one, open("lock", encoding="utf-8") as other:
        fcntl.flock(one, fcntl.LOCK_EX)
        try:
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            raise AssertionError("no lock")
        fcntl.lockf(one, fcntl.LOCK_EX)


def attributes() -> None:
    try:
        os.setxattr("file", "user.note", b"kept")
    except OSError as error:
        assert error.errno == errno.ENOTSUP, error  # a file system that has none
        return
    assert os.getxattr("file", "user.note") == b"kept"


def watches() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_CLOEXEC)
    os.mkdir("watched")
    assert libc.inotify_add_watch(watch, b"watched", IN_CREATE) == 1
    Path("watched/made").touch()
    assert select.select([watch], [], [], 30)[0] == [watch]
    _, mask = struct.unpack_from("iI", os.read(watch, 4096))
    assert mask == IN_CREATE


def contents() -> None:
    with open("big", "w+b") as file:
        os.posix_fallocate(file.fileno(), 0, 1 << 20)
        with mmap.mmap(file.fileno(), 0) as memory:
            memory[:4] = b"data"
            memory.flush()
        with open("copied", "wb") as copy:
            os.copy_file_range(file.fileno(), copy.fileno(), 1 << 20, 0, 0)
        with open("sent", "wb") as sent:
            os.sendfile(sent.fileno(), file.fileno(), 0, 1 << 20)
        os.fsync(file.fileno())
        file.truncate(4)
    assert Path("copied").read_bytes()[:4] == Path("sent").read_bytes()[:4] == b"data"
    memory_file = os.memfd_create("memory")
    os.write(memory_file, b"#!/bin/sh\nexit 7\n")
    assert os.waitstatus_to_exitcode(os.system("exit 7")) == 7  # noqa: S605
    assert Path(f"/proc/self/fd/{memory_file}").read_bytes().startswith(b"#!")


def main() -> None:
    temporary()
    names_and_modes()
    locks()
    attributes()
    watches()
    contents()
    print("all of it works")


if __name__ == "__main__":
    main()
