"""The `RunSpec`: what to run and how.

One struct is the command line's target, the ``spec`` file in a run's directory, the body of a POST
and the argument of `Supervisor.start`.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from agentctl_protocol.call_names import oddity
from agentctl_protocol.errors import LocalProtocolError
from agentctl_protocol.os_names import display, to_native, to_text
from agentctl_protocol.shell_words import shell_words
from agentctl_protocol.values import pack_value
from agentctl_protocol.visible_text import is_visible
from agentctl_protocol.vocabulary import CONFINED, Network, Sandbox

DEFAULT_GRACE_S: Final = 5.0
DEFAULT_TERM_GRACE_S: Final = 2.0
DEFAULT_OUTPUT_BYTES: Final = 1 << 30
DEFAULT_CAPTURE_BYTES: Final = 1 << 20
MAX_INPUT_BYTES: Final = 1 << 19
MAX_PATTERN: Final = 256
MAX_PATH: Final = 4096

KINDS: Final = ("tool", "model")
"""The kinds of calls, which a pattern may begin with (``model:gpt-*``)."""

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_RUN_ID: Final = re.compile(r"r-[a-z2-7]{8}")
_TAG_KEY: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,62}")


class SpecError(ValueError):
    """A `RunSpec` that cannot be run as it is written. ``hint`` says what to do instead."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(display(text))
        self.hint = display(hint)


class RunSpec(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A run to start: what to run, and how. Exactly one of ``argv`` and ``target`` is given.

    Arguments, paths and variables are native names in the sense of `os_names`. `stored` and
    `written` give them as text, and `opened` reverses that.

    Fields:
        argv: a program and its arguments; found on ``PATH`` unless it has a slash.
        target: ``module:function`` or ``path.py:function``.
        input: the function's argument; any value that JSON can represent.
        python: the interpreter for ``target`` (default: the supervisor's own).
        cwd: working directory (default: the workspace, or else the supervisor's own).
        env: the whole environment of the run. Default: at strict and standard a few
            harmless variables of the supervisor's, else all of them. Values are never
            stored: the ``spec`` file holds ``env_names``.
        resumes: id of a finished run to continue: its checkpoint and its calls reach the
            agent (``run.resumed``).
        name: for people; a live run's name is unique. tags: for people and filters.
        sandbox: how much the run is confined (default: ``$AGENTCTL_SANDBOX``, else strict).
        workspace: the directory that the run may write to. Default: ``cwd``; a fresh
            directory if ``cwd`` is ``/``, the home directory or a directory above it.
            Strict and standard only, like ``ro``, ``rw`` and ``unprotect``. ``ro`` and
            ``rw``: more paths that it may read, or also write. ``unprotect``: names in the
            workspace (``.git/hooks``) that it may change although they are protected.
        net: what it reaches of the network (default: none at strict and standard).
        calls, tokens: budgets of the run's model and tool calls, and of the tokens that they
            use; an ask past one is refused and ends the run. calls_of: budgets of calls by
            pattern (``{"shell": 3}``); an ask past one is refused.
        allow, deny, approve: the only calls that may be made, the calls that may not, and the
            calls that wait for a person. Patterns are ``NAME`` or ``NAME:ARGUMENTS`` with
            ``*``; they are for tools and models unless they begin with ``tool:`` or
            ``model:``.
        stop_when: the termination condition that ends the run, as text or as JSON.
        origins: where settings came from (``{"sandbox": "agentctl.toml"}``), for people.
        time_s: hard wall-clock limit in seconds; None means no limit.
        grace_s, term_grace_s: seconds that a stop waits for the agent to obey the
            message, then SIGTERM.
        stdin: give the run an open standard input (`Run.stdin`) instead of none.
        output_bytes: limit of stdout and stderr together; None means no limit.
        capture_bytes: how much of the end of stdout, and of stderr, `Report` keeps.
    """

    argv: Sequence[str] | None = None
    target: str | None = None
    input: Any = None
    python: str | None = None
    cwd: str | None = None
    env: dict[str, str] | None = None
    env_names: tuple[str, ...] = ()
    resumes: str | None = None
    name: str | None = None
    tags: dict[str, str] = {}
    sandbox: Sandbox | None = None
    workspace: str | None = None
    ro: tuple[str, ...] = ()
    rw: tuple[str, ...] = ()
    unprotect: tuple[str, ...] = ()
    net: Network | None = None
    calls: int | None = None
    tokens: int | None = None
    calls_of: dict[str, int] = {}
    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    approve: Sequence[str] = ()
    stop_when: Any = None
    origins: dict[str, str] = {}
    time_s: float | None = None
    grace_s: float = DEFAULT_GRACE_S
    term_grace_s: float = DEFAULT_TERM_GRACE_S
    stdin: bool = False
    output_bytes: int | None = DEFAULT_OUTPUT_BYTES
    capture_bytes: int = DEFAULT_CAPTURE_BYTES

    @property
    def command(self) -> str:
        """The command as it would be typed into a shell: one printable line."""
        return shell_words(self.argv or () if self.target is None else (self.target,))

    def stored(self) -> "RunSpec":
        """Return the form that may be written to disk: without the environment's values."""
        if self.env is None:
            return self.written()
        names = tuple(sorted(self.env))
        return msgspec.structs.replace(self, env=None, env_names=names).written()

    def written(self) -> "RunSpec":
        """Return the form that can be sent: its names as text (`os_names`)."""
        origins = {key: display(origin) for key, origin in self.origins.items()}
        return msgspec.structs.replace(self._with_names(to_text), origins=origins)

    def opened(self) -> "RunSpec":
        """Return the spec from which `written` was made.

        Raises:
            ValueError: a text in it stands for no name.
        """
        return self._with_names(to_native)

    def _with_names(self, form: Callable[[str], str]) -> "RunSpec":
        changed: dict[str, Any] = {}
        for field in ("target", "python", "cwd", "workspace"):
            if (one := getattr(self, field)) is not None:
                changed[field] = form(one)
        for field in ("ro", "rw", "unprotect", "env_names"):
            changed[field] = tuple(map(form, getattr(self, field)))
        if self.argv is not None:
            changed["argv"] = list(map(form, self.argv))
        if self.env is not None:
            changed["env"] = {form(key): form(value) for key, value in self.env.items()}
        return msgspec.structs.replace(self, **changed)

    def checked(self) -> "RunSpec":
        """Return this spec after all checks.

        Raises:
            SpecError: it cannot be run as it is written.
        """
        self.check_types()
        self._check_what()
        self._check_sandbox()
        self._check_labels()
        self._check_numbers()
        return self

    def check_types(self) -> None:
        """Check that every field has its declared type, because a constructor does not check that.

        Words of ``sandbox`` and ``net`` may be plain strings.

        Raises:
            SpecError: the text names the field, and what was expected there.
        """
        if isinstance(self.argv, str):
            raise SpecError("argv is one string", "give a list: the program and its arguments")
        for option in ("ro", "rw", "unprotect", "allow", "deny", "approve"):
            if isinstance(getattr(self, option), str):
                raise SpecError(f"{option} is one string", "give a list of strings")
        try:
            given = {name: getattr(self, name) for name in _FIELDS}
            for name in ("sandbox", "net"):
                if isinstance(given[name], str):
                    del given[name]
            msgspec.convert(given, RunSpec)
        except msgspec.ValidationError as error:
            expected, _, at = str(error).partition(" - at `$.")
            field = at.rstrip("`") or "a field"
            raise SpecError(f"RunSpec.{field}: {expected}"[:200]) from None
        try:
            pack_value(self.input)
        except LocalProtocolError as error:
            raise SpecError(
                f"input: {error}"[:200], "pass a very large number as a string, or use a file"
            ) from None

    def _check_what(self) -> None:
        if (self.argv is None) == (self.target is None):
            raise SpecError("a run has either argv or target", "give exactly one of the two")
        if self.argv is not None and (not self.argv or not self.argv[0]):
            raise SpecError("no program to run", "agentctl run -- PROGRAM ARG...")
        if self.argv is not None and self.input is not None:
            raise SpecError(
                "input goes with a function, not with a program", "use its standard input"
            )
        if self.target is not None:
            split_target(self.target)
        for text in (*(self.argv or ()), self.target or "", self.cwd or "", self.python or ""):
            if "\0" in text:
                raise SpecError("an argument or path holds a NUL byte")
        for key, value in (self.env or {}).items():
            if not key or "=" in key or "\0" in key or "\0" in value:
                raise SpecError(f"not an environment variable: {key!r}"[:200])
        try:
            self._with_names(to_text)
        except UnicodeEncodeError:  # its text may be a secret of the environment
            raise SpecError("an argument, a path or a variable cannot be encoded") from None

    def _check_sandbox(self) -> None:
        for path in (self.workspace, *self.ro, *self.rw, *self.unprotect):
            if path is not None and (not path or "\0" in path or len(path) > MAX_PATH):
                raise SpecError(f"not a path: {path[:80]!r}")
        if self.sandbox is None or self.sandbox in CONFINED:
            return
        for option in ("workspace", "ro", "rw", "unprotect"):
            if getattr(self, option):
                raise SpecError(
                    f"--{option} means nothing at {self.sandbox}: it may write to all that you may",
                    "--sandbox strict, or leave it out",
                )
        if self.net == Network.NONE:
            raise SpecError(
                f"no wall keeps a run at {self.sandbox} from the network",
                "--sandbox strict, or --net host",
            )

    def _check_labels(self) -> None:
        if self.resumes is not None and not is_run_id(self.resumes):
            raise SpecError(f"not the id of a run: {self.resumes[:40]!r}")
        if self.name is not None:
            check_name(self.name)
        for key, value in self.tags.items():
            if not _TAG_KEY.fullmatch(key) or len(value) > 256 or not value.isprintable():
                raise SpecError(f"not a tag: {key!r}"[:120], "--tag KEY=VALUE, letters and digits")

    def _check_numbers(self) -> None:
        if self.time_s is not None and not 0 < self.time_s < 1e9:
            raise SpecError(f"{self.time_s:g} seconds is not a time limit", "leave it out for none")
        for what, seconds in (("grace", self.grace_s), ("term grace", self.term_grace_s)):
            if not 0 <= seconds < 1e9:
                raise SpecError(f"{seconds:g} seconds is not a {what}")
        if self.output_bytes is not None and self.output_bytes <= 0:
            raise SpecError(f"{self.output_bytes} bytes is not an output limit", "None is none")
        for name in ("calls", "tokens"):
            most = getattr(self, name)
            if most is not None and most <= 0:
                raise SpecError(f"{most} {name} is not a budget", "leave it out for none")
        for pattern, most in self.calls_of.items():
            check_pattern(pattern)
            if most < 0:
                raise SpecError(f"{most} calls of {pattern!r} is not a budget"[:200])
        for pattern in (*self.allow, *self.deny, *self.approve):
            check_pattern(pattern)
        if self.capture_bytes < 0:
            raise SpecError(f"cannot keep {self.capture_bytes} bytes of output")


_FIELDS: Final = RunSpec.__struct_fields__


def split_target(target: str) -> tuple[str, str]:
    """Return ``(module or path, function)`` of *target*.

    Raises:
        SpecError: it does not have that form.
    """
    where, colon, function = target.rpartition(":")
    if not colon or not where or not function.isidentifier():
        raise SpecError(
            f"not a target: {target!r}"[:200], "use module:function or path.py:function"
        )
    if not where.endswith(".py") and not all(p.isidentifier() for p in where.split(".")):
        raise SpecError(f"not a module: {where!r}"[:200], "use module:function or path.py:function")
    return where, function


def check_pattern(pattern: str) -> None:
    """Check a pattern of calls.

    Raises:
        SpecError: it names no call, or is too long.
    """
    shown = pattern if len(pattern) <= 40 else pattern[:40] + "..."
    kind, _, rest = pattern.partition(":")
    body = rest if kind in KINDS and rest else pattern
    name = body.partition(":")[0]
    if not name or len(pattern) > MAX_PATTERN or not is_visible(pattern):
        raise SpecError(
            f"not a pattern of calls: {shown!a}",
            "NAME or NAME:ARGUMENTS, with *; tool:NAME or model:NAME for one kind",
        )
    # A star may stand for anything, so it is replaced by a letter for this check.
    if odd := oddity(name.replace("*", "x").replace("?", "x")):
        raise SpecError(f"the pattern {shown!a} is met by no call: {odd}", "type the name anew")


def check_name(name: str) -> str:
    """Return *name*, a run's name for people, after a check.

    Raises:
        SpecError: it is too long, could be taken for an option, an id or a path, or would not
            survive a terminal.
    """
    if not _NAME.fullmatch(name) or _RUN_ID.fullmatch(name):
        shown = name if len(name) <= 40 else name[:40] + "..."
        raise SpecError(
            f"not a run name: {shown!r}",
            "1 to 63 letters, digits, '_', '-' or '.', the first neither '-' nor '.'",
        )
    return name


def is_run_id(text: str) -> bool:
    """Return True if *text* has the form of a run id: ``r-`` and 8 base32 characters."""
    return _RUN_ID.fullmatch(text) is not None
