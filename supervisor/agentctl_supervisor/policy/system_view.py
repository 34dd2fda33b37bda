"""What every run sees of the system: programs and libraries, and what of /etc they need."""

import fnmatch
import os
from collections.abc import Iterator
from typing import Final

_DIRECTORIES: Final = ("/usr", "/opt", "/nix/store", "/gnu/store", "/run/current-system")
_TOP: Final = ("bin", "sbin", "lib", "lib*")
_PROCESSORS: Final = "/sys/devices/system/cpu"
"""How many there are, and their caches: PyTorch, ONNX, hwloc and lscpu complain or fail without.
/proc/cpuinfo says as much; the rest of /sys describes the machine, and stays away."""

_ETC: Final = (
    *("alternatives", "fonts", "java-*", "perl", "profile", "python3.*", "timezone", "localtime"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl-*.path"),
    *("mime.types", "nsswitch.conf", "os-release", "protocols", "services"),
    *("ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "crypto-policies"),
    *("pki/ca-trust", "pki/java", "pki/tls/cert.pem", "pki/tls/certs", "pki/tls/openssl.cnf"),
)
"""What programs fail without, or behave differently.  Nothing in it is a secret, names a user
or says how this machine is reached; and each costs every run a mount."""

RESOLVER: Final = "/etc/resolv.conf"
HOSTS: Final = "/etc/hosts"


def system_paths() -> Iterator[str]:
    """The directories, as they are called here: links and all."""
    for path in (*_DIRECTORIES, _PROCESSORS):
        if os.path.isdir(path):
            yield path
    for name in sorted(os.listdir("/")):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in _TOP):
            yield f"/{name}"


def etc_paths() -> Iterator[str]:
    """What is there of the list, as it is called here."""
    there: list[str] | None = None
    for pattern in _ETC:
        if "*" not in pattern:
            if os.path.exists(f"/etc/{pattern}"):
                yield f"/etc/{pattern}"
            continue
        if there is None:
            there = sorted(os.listdir("/etc"))
        yield from (f"/etc/{name}" for name in there if fnmatch.fnmatchcase(name, pattern))
