"""The paths of the system that every run sees: programs, libraries and what they need of /etc."""

import fnmatch
import os
from collections.abc import Iterator
from typing import Final

_DIRECTORIES: Final = ("/usr", "/opt", "/nix/store", "/gnu/store", "/run/current-system")
_TOP: Final = ("bin", "sbin", "lib", "lib*")
_PROCESSORS: Final = "/sys/devices/system/cpu"
"""The number of processors and their caches.  Without it PyTorch, ONNX, hwloc and lscpu complain or
fail.  /proc/cpuinfo shows the same facts.  The rest of /sys describes the machine and is not
shown."""

_ETC: Final = (
    *("alternatives", "fonts", "java-*", "perl", "profile", "python3.*", "timezone", "localtime"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl-*.path"),
    *("mime.types", "nsswitch.conf", "os-release", "protocols", "services"),
    *("ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "crypto-policies"),
    *("pki/ca-trust", "pki/java", "pki/tls/cert.pem", "pki/tls/certs", "pki/tls/openssl.cnf"),
)
"""The files of /etc without which programs fail or behave differently.  None has a secret, names a
user or says how this machine is reached.  Each one costs every run a mount."""

RESOLVER: Final = "/etc/resolv.conf"
HOSTS: Final = "/etc/hosts"


def system_paths() -> Iterator[str]:
    """Yield the directories under their names on this machine; links are not resolved."""
    for path in (*_DIRECTORIES, _PROCESSORS):
        if os.path.isdir(path):
            yield path
    for name in sorted(os.listdir("/")):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in _TOP):
            yield f"/{name}"


def etc_paths() -> Iterator[str]:
    """Yield the paths of `_ETC` that exist on this machine."""
    there: list[str] | None = None
    for pattern in _ETC:
        if "*" not in pattern:
            if os.path.exists(f"/etc/{pattern}"):
                yield f"/etc/{pattern}"
            continue
        if there is None:
            there = sorted(os.listdir("/etc"))
        yield from (f"/etc/{name}" for name in there if fnmatch.fnmatchcase(name, pattern))
