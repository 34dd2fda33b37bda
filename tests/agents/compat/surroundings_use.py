"""What a program asks about where it is: user, host, locale, time zone, names, machine."""

import getpass
import grp
import locale
import os
import platform
import pwd
import resource
import socket
import ssl
import sys
import time
import zoneinfo
from datetime import datetime
from pathlib import Path


def user() -> None:
    own = pwd.getpwuid(os.getuid())
    assert getpass.getuser() == own.pw_name == os.environ["USER"]
    assert pwd.getpwnam(own.pw_name) == own
    assert own in pwd.getpwall()
    assert grp.getgrgid(os.getgid()).gr_gid == os.getgid()
    assert pwd.getpwnam("root").pw_uid == 0
    home = Path("~").expanduser()
    assert home == Path.home() == Path(own.pw_dir)
    Path(home, ".config").mkdir()
    Path(home, ".config/settings").write_text("x")
    assert set(os.getgroups()) <= {os.getgid(), 65534}, os.getgroups()
    try:
        os.getlogin()
    except OSError:  # nobody has logged in on a terminal here
        pass


def languages() -> None:
    for name in ("C", "C.UTF-8", ""):
        locale.setlocale(locale.LC_ALL, name)
    assert locale.format_string("%d", 1) == "1"
    assert sys.getfilesystemencoding() == "utf-8"
    Path("na\u00efve \u65e5\u672c\u8a9e").touch()
    assert "na\u00efve \u65e5\u672c\u8a9e" in os.listdir(".")


def zones() -> None:
    for name, hours in (("Asia/Tokyo", 9), ("Asia/Kolkata", 5.5), ("UTC", 0)):
        if not zoneinfo.TZPATH or name not in zoneinfo.available_timezones():
            continue
        offset = datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo(name)).utcoffset()
        assert offset is not None
        assert offset.total_seconds() == hours * 3600
        os.environ["TZ"] = name
        time.tzset()
        assert -time.timezone == hours * 3600, name
    del os.environ["TZ"]
    time.tzset()
    assert time.localtime().tm_zone


def names() -> None:
    assert socket.getaddrinfo("localhost", 80)
    assert socket.gethostbyname("localhost") == "127.0.0.1"
    for name in ("example.com", "nowhere.invalid"):
        before = time.monotonic()
        try:
            socket.getaddrinfo(name, 80)
        except socket.gaierror:
            pass
        else:
            raise AssertionError("there is a network")
        assert time.monotonic() - before < 1
    # Its own name, as many programs look it up when they start.
    assert socket.getaddrinfo(socket.gethostname(), None)
    before = time.monotonic()
    socket.getfqdn()
    assert time.monotonic() - before < 1
    assert any(name == "lo" for _, name in socket.if_nameindex())


def machine() -> None:
    assert (os.cpu_count() or 0) >= len(os.sched_getaffinity(0)) >= 1
    assert platform.platform()
    assert platform.freedesktop_os_release()["ID"]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 256
    assert time.clock_gettime(time.CLOCK_BOOTTIME) > 0
    assert os.getloadavg()
    assert ssl.create_default_context().cert_store_stats()["x509"] >= 0
    os.nice(1)
    os.sched_setaffinity(0, os.sched_getaffinity(0))


if __name__ == "__main__":
    user()
    languages()
    zones()
    names()
    machine()
    print("all of it works")
