"""The reasons why a run did not start, in words for the person who started it."""

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from agentctl_child.sandbox import task_table
from agentctl_protocol.os_names import display
from agentctl_protocol.shared_counters import used_up
from agentctl_protocol.shell_words import shell_word
from agentctl_protocol.spawning import Refused
from agentctl_protocol.vocabulary import CONFINED, Sandbox

Fault = Literal["not_found", "not_executable", "sandbox", "system"]

#: MAX_ARG_STRLEN of execve(2): one string, with its final NUL.
LONGEST_ARGUMENT: Final = 131_072
NO_NAMESPACE: Final = "no pid namespace for the run: "
_SHOWN: Final = 200
_TOLD: Final = 500


class CannotStartError(Exception):
    """The run cannot start. ``fault`` names the cause; the text is one sentence.

    ``step``: the step of `steps` that failed, if there is one.
    """

    def __init__(self, fault: Fault, detail: str, *, hint: str = "") -> None:
        super().__init__(display(detail))
        self.fault: Fault = fault
        self.hint = display(hint)
        self.step = ""

    def packet(self) -> Refused:
        """Return the packet for the supervisor, short enough for a `packet_pipe`."""
        return Refused(fault=self.fault, detail=str(self)[:_TOLD], hint=self.hint[:_TOLD])


def refused_by_system(what: str, error: OSError) -> CannotStartError:
    """Return the refusal for an operation of ours that failed."""
    hint = "See `agentctl doctor`: it says what is missing here."
    if known := used_up(error.errno):
        hint = f"Used up: {known}."
    if error.errno == errno.EAGAIN and (bound := task_table.nearest(os.getuid())) is not None:
        hint = _used_up_tasks(bound)
    return CannotStartError("system", f"{what}: {error.strerror}", hint=hint)


def refused_without_tasks(bound: task_table.Bound) -> CannotStartError:
    """Return the refusal for a shared process limit that is nearly used up."""
    return CannotStartError(
        "system", "too few processes are left for a run", hint=_used_up_tasks(bound)
    )


def _used_up_tasks(bound: task_table.Bound) -> str:
    return (
        f"{bound.name} is {bound.limit}, and {bound.used} processes and threads are there:"
        " end some, or raise it."
    )


def why_ended(what: str, error: BaseException) -> Refused:
    """Return the packet for a step of ours that raised *error*, whatever its type."""
    match error:
        case CannotStartError():
            return error.packet()
        case OSError():
            return refused_by_system(what, error).packet()
        case _:
            text = f"{what}: {type(error).__name__}: {error}"
            return CannotStartError("system", text[:_TOLD]).packet()


def why_no_namespace(error: OSError) -> str:
    """Return why this machine gives us no pid namespace, with the usual cause of the errno."""
    behind = {
        errno.ENOSPC: "the limit on namespaces is reached or zero (sysctl user.max_*_namespaces)",
        errno.EPERM: "user namespaces are switched off here, or the container forbids them",
        errno.EACCES: "user namespaces are restricted here (AppArmor, on Ubuntu)",
        errno.EINVAL: "this kernel was built without them",
    }
    where = f" of {error.filename}" if error.filename else ""
    said = f"{error.strerror}{where}"
    known = behind.get(error.errno or 0)
    return f"{known} ({said})" if known else said


def why_refused(name: str, error: OSError) -> str:
    """Return why the step ``name`` of `steps` failed, with the usual cause of the errno."""
    if name in _MAKING_NAMESPACES:
        return why_no_namespace(error)
    where = f" of {error.filename}" if error.filename else ""
    said = f"{error.strerror}{where}"
    match error.errno:
        case errno.EPERM | errno.EACCES if name in _IN_NAMESPACES and os.geteuid() != 0:
            known = "user namespaces give no rights here (AppArmor, on Ubuntu)"
        case errno.EPERM | errno.EACCES:
            known = "a filter or a security module around agentctl forbids it"
        case errno.ENOSYS:
            known = "this kernel does not have the call, or a filter around agentctl hides it"
        case errno.ENOSPC if name in _IN_NAMESPACES:
            known = "a limit is reached (sysctl fs.mount-max, user.max_*_namespaces)"
        case _:
            return said
    return f"{known} ({said})"


_MAKING_NAMESPACES: Final = frozenset({"namespaces", "identity"})
_IN_NAMESPACES: Final = frozenset(
    {
        *("memory dumps", "loopback", "host name", "cgroup namespace", "private root"),
        *("own /proc", "control groups", "user's counters", "out-of-memory rank"),
    }
)


def refused_namespace(name: str, error: OSError) -> CannotStartError:
    """Return the refusal for an unavailable or unusable pid namespace: step ``name`` failed."""
    return CannotStartError(
        "sandbox",
        f"{NO_NAMESPACE}{why_refused(name, error)}",
        hint="AGENTCTL_CONTAINMENT=subreaper names the weaker fallback; see `agentctl doctor`.",
    )


def refused_step(name: str, level: Sandbox, error: OSError) -> CannotStartError:
    """Return the refusal for a step of the confinement that the kernel refused.

    ``name`` is the step's name in `steps`.
    """
    if used_up(error.errno):
        return refused_by_system(f"the run's {name} cannot be set up", error)
    if level not in CONFINED:
        if name in _MAKING_NAMESPACES | _IN_NAMESPACES:
            return refused_namespace(name, error)
        return CannotStartError(
            "sandbox",
            f"the run's {name} cannot be set up: {why_refused(name, error)}",
            hint="See `agentctl doctor`.",
        )
    if name == "private root" and error.errno == errno.EPERM and "fsmount" in str(error):
        # In a user namespace the kernel mounts a new /proc only if the old one is not masked.
        return CannotStartError(
            "sandbox",
            "the sandbox's own /proc is refused: this container masks parts of the machine's",
            hint="Start the container with an unmasked /proc (docker: --security-opt"
            f" systempaths=unconfined), or {_WEAKER[level]}.",
        )
    return CannotStartError(
        "sandbox",
        f"the sandbox's {name} cannot be set up: {why_refused(name, error)}",
        hint=f"See `agentctl doctor`; or {_WEAKER[level]}.",
    )


def refused_part(
    path: bytes, problem: str, hint: str, error: OSError | None = None
) -> CannotStartError:
    """Return the refusal for a part of the view that cannot be shown.

    ``error``: the kernel's error.
    """
    if error is not None and used_up(error.errno):
        return refused_by_system(f"{shown(path)} cannot be made visible to the run", error)
    otherwise = f"See `agentctl doctor`; or {_WEAKER[Sandbox.STRICT]}."
    return CannotStartError("sandbox", f"{shown(path)} {problem}", hint=hint or otherwise)


def refused_layers(level: Sandbox, missing: Sequence[str]) -> CannotStartError:
    """Return the refusal for layers that were set up but that the kernel does not confirm."""
    return CannotStartError(
        "sandbox",
        f"the sandbox does not hold: {', '.join(missing)} could not be confirmed",
        hint=f"See `agentctl doctor`; or {_WEAKER.get(level, 'report this')}.",
    )


_WEAKER: Final = {
    Sandbox.STRICT: "--sandbox standard names a weaker level, without namespaces",
    Sandbox.STANDARD: "--sandbox basic names a weaker level, which contains and does not confine",
}


def refused_working_directory(path: bytes, error: OSError) -> CannotStartError:
    """Return the refusal for a working directory that is missing, or that the run may not enter."""
    return CannotStartError(
        "system",
        f"the working directory {shown(path)} cannot be entered: {error.strerror}",
        hint="Create it, or name another one.",
    )


def refused_program(
    error: OSError, path: bytes, argv: Sequence[bytes], env: Mapping[bytes, bytes]
) -> CannotStartError:
    """Return the refusal for a failed execve(2) of ``path``, the program of ``argv[0]``."""
    program = shown(argv[0])
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        if os.path.exists(path):
            # The file exists: the interpreter or loader that it names is missing.
            return _without_interpreter(program, path)
        hint = "" if b"/" in argv[0] else "It was looked for in the PATH of the run's environment."
        return CannotStartError("not_found", f"program not found: {program}", hint=hint)
    if error.errno == errno.E2BIG:
        return _too_long(argv, env)
    if error.errno in (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.EIO):
        return refused_by_system(f"{program} cannot be executed", error)
    detail, hint = str(error.strerror), ""
    if os.path.isdir(path):
        detail = "it is a directory"
    elif error.errno == errno.ENOEXEC:
        detail = "it is neither a binary of this machine nor a script"
        hint = "A script's first line names its interpreter, as in #!/bin/sh."
    elif error.errno == errno.EACCES and not _has_execute_bit(path):
        detail = "it is not marked as executable"
        hint = f"chmod +x {shell_word(path)}"
    return CannotStartError("not_executable", f"{program} cannot be executed: {detail}", hint=hint)


def _too_long(argv: Sequence[bytes], env: Mapping[bytes, bytes]) -> CannotStartError:
    limit = f"One argument may be at most {LONGEST_ARGUMENT:,} bytes"
    other_way = "Pass long data through standard input or a file."
    for position, argument in enumerate(argv):
        if len(argument) >= LONGEST_ARGUMENT:
            return CannotStartError(
                "not_executable",
                f"argument {position} is too long: {len(argument):,} bytes",
                hint=f"{limit}. {other_way}",
            )
    for name, value in env.items():
        if len(name) + len(value) + 1 >= LONGEST_ARGUMENT:
            return CannotStartError(
                "not_executable",
                f"the variable {shown(name)} is too long: {len(value):,} bytes",
                hint=f"{limit}, a variable too.",
            )
    total = sum(map(len, argv)) + sum(len(name) + len(env[name]) for name in env)
    return CannotStartError(
        "not_executable",
        f"arguments and environment are too long: {total:,} bytes together",
        hint=other_way,
    )


def _without_interpreter(program: str, path: bytes) -> CannotStartError:
    """Return the refusal for a file whose interpreter (script) or loader (binary) is missing."""
    beginning = _beginning(path)
    cannot = f"{program} cannot be executed"
    if beginning.startswith(b"\x7fELF"):
        return CannotStartError(
            "not_found",
            f"{cannot}: the dynamic loader that it was linked for is not there",
            hint="It was built for another system (musl or glibc, 32 or 64 bits), or the run"
            " does not see its loader: --ro DIR shows it a directory.",
        )
    line, _, _ = beginning.partition(b"\n")
    if line.endswith(b"\r"):
        return CannotStartError(
            "not_found",
            f"{cannot}: its first line ends in a carriage return (\\r, a CRLF line end), which"
            f" Linux takes for a part of the interpreter's name: {shown(line)}",
            hint=f"sed -i 's/\\r$//' {shell_word(path)} gives it Unix line ends.",
        )
    named = _interpreter(line)
    return CannotStartError(
        "not_found",
        f"{cannot}: the run has no {named}, its interpreter"
        if named
        else f"{cannot}: what it needs in order to run is not there",
        hint="Install the interpreter or correct the file's first line; if it is there outside"
        " of the run, --ro DIR shows the run its directory.",
    )


def _beginning(path: bytes) -> bytes:
    """Return the bytes that the kernel reads to find an interpreter: BINPRM_BUF_SIZE, 256 bytes."""
    try:
        with open(path, "rb") as file:
            return file.read(256)
    except OSError:
        return b""


def _interpreter(line: bytes) -> str:
    """Return the interpreter in a ``#!`` line; its words end at a blank or tab only."""
    if not line.startswith(b"#!"):
        return ""
    named, _, _ = line[2:].strip(b" \t").replace(b"\t", b" ").partition(b" ")
    return shown(named)


def _has_execute_bit(path: bytes) -> bool:
    try:
        return bool(os.stat(path).st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH))
    except OSError:
        return True


def shown(text: bytes) -> str:
    """Return *text* as one bounded line of printable characters."""
    decoded = os.fsdecode(text)
    line = "".join(c if c.isprintable() else f"\\x{ord(c) & 0xFF:02x}" for c in decoded)
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"
