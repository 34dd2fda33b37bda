"""Keep and find keys in the kernel, which no namespace separates: refused.

What a run leaves in the keyring of its user is there for the next run, and the user's own
keys (those of a file system, or a Kerberos ticket) are there for the run.
"""

import ctypes
import errno

from attempt import Blocked, attempt, syscall

_ADD_KEY, _REQUEST_KEY, _KEYCTL = 248, 249, 250
_PROCESS_KEYRING, _SESSION_KEYRING, _USER_KEYRING = -2, -3, -4
_GET_KEYRING_ID, _JOIN_SESSION_KEYRING, _DESCRIBE, _READ = 0, 1, 6, 11
_SECRET = b"left behind"
_NAME = b"agentctl-attack"


def _read(key: int) -> str:
    data = ctypes.create_string_buffer(64)
    size = syscall(_KEYCTL, _READ, key, data, len(data), 0)
    if not size:
        raise Blocked("an empty key")
    return data.raw[:size].decode()


def _added(keyring: int) -> str:
    return _read(syscall(_ADD_KEY, b"user", _NAME, _SECRET, len(_SECRET), keyring))


def own() -> str:
    return _added(_PROCESS_KEYRING)


def of_the_session() -> str:
    """A new session, so that nothing is left in the caller's."""
    syscall(_KEYCTL, _JOIN_SESSION_KEYRING, None, 0, 0, 0)
    return _added(_SESSION_KEYRING)


def of_the_user() -> str:
    keyring = syscall(_KEYCTL, _GET_KEYRING_ID, _USER_KEYRING, 0, 0, 0)
    description = ctypes.create_string_buffer(256)
    syscall(_KEYCTL, _DESCRIBE, keyring, description, len(description), 0)
    return description.value.decode()


def request() -> str:
    """ENOKEY: the kernel looked, and would have asked a program of the host's to make it."""
    try:
        return _read(syscall(_REQUEST_KEY, b"user", b"agentctl-no-such-key", None, 0))
    except OSError as error:
        if error.errno != errno.ENOKEY:
            raise
    return "the kernel looked for a key"


attempt({"add_key": own, "session": of_the_session, "user": of_the_user, "request_key": request})
