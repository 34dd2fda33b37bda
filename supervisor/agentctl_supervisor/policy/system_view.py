"""What every run sees of the system: programs and libraries, and what of /etc they need."""

import fnmatch
import os
from collections.abc import Iterator
from typing import Final

_DIRECTORIES: Final = ("/usr", "/opt", "/nix/store", "/gnu/store", "/run/current-system")
_TOP: Final = ("bin", "sbin", "lib", "lib*")

_ETC: Final = (
    *("alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf"),
    *("crypto-policies", "debian_version", "ethertypes", "fonts", "gai.conf", "host.conf"),
    *("inputrc", "java-*", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl-*.path"),
    *("locale.alias", "locale.conf", "localtime", "lsb-release", "magic", "magic.mime"),
    *("mailcap", "mime.types", "networks", "nsswitch.conf", "os-release", "perl"),
    *("profile", "profile.d", "protocols", "python3", "python3.*", "redhat-release", "rpc"),
    *("services", "sgml", "shells", "terminfo", "timezone", "xml"),
    *("ssl/cert.pem", "ssl/certs", "ssl/ct_log_list.cnf", "ssl/openssl.cnf"),
    *("pki/ca-trust", "pki/java", "pki/tls/cert.pem", "pki/tls/certs", "pki/tls/openssl.cnf"),
)
"""Nothing in it is a secret, names a user or says how this machine is reached."""

RESOLVER: Final = "/etc/resolv.conf"
HOSTS: Final = "/etc/hosts"


def system_paths() -> Iterator[str]:
    """The directories, as they are called here: links and all."""
    for path in _DIRECTORIES:
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
