"""Implements ``agentctl run``: makes a `RunSpec` from the command line and runs it."""

import argparse
import os
import sys
from typing import Any, Final

import msgspec

from agentctl_protocol.shell_words import shell_word, shell_words
from agentctl_protocol.spec import MAX_INPUT_BYTES, RunSpec
from agentctl_protocol.vocabulary import Sandbox
from agentctl_supervisor.cli.terminal import stop_signals
from agentctl_supervisor.cli.terminal.console import plain, say
from agentctl_supervisor.config.profiles import Settings, settings_of
from agentctl_supervisor.config.settings import KEYS, budgets
from agentctl_supervisor.errors import UsageError

_USAGE_HINT: Final = "agentctl run -- PROGRAM ARG..., or agentctl run module:function"


def run(options: argparse.Namespace) -> int:
    """Execute the command; return when the run is over or, with ``-d``, when it is running."""
    if options.detach and options.stdin:
        raise UsageError("-i and -d exclude each other", hint="a detached run reads nothing")
    spec = spec_from(options)
    if options.explain:
        from agentctl_supervisor.cli.commands import explain

        return explain.run(spec, as_json=options.format == "json")
    return start(spec, options)


def start(spec: RunSpec, options: argparse.Namespace) -> int:
    """Run *spec* as *options* (of run, rerun or resume) say, and return the exit code."""
    as_json = options.format == "json"
    if options.detach:
        from agentctl_supervisor.cli.commands import detached_start

        return detached_start.run(spec, quiet=options.quiet, as_json=as_json)
    from agentctl_supervisor.processes import own_limits
    from agentctl_supervisor.spawner.start import StartedSpawner

    own_limits.take_all()
    # The spawner starts while we import the event loop, which takes as long.  Signals are held
    # back until the run can handle them.  A KeyboardInterrupt during the imports would sometimes
    # end our process by the signal itself (CPython remembers one that passed through `exec`).
    with StartedSpawner() as spawner, stop_signals.held():
        from agentctl_supervisor.cli.commands import foreground

        return foreground.run(spec, spawner, quiet=options.quiet, as_json=as_json)


def spec_from(options: argparse.Namespace) -> RunSpec:
    """Return the spec that the command line asks for.

    Raises:
        UsageError, SpecError: the command line cannot be run as it is written.
    """
    argv, target = _what(options.rest, options.program)
    if argv is not None and options.python is not None:
        raise UsageError("--python goes with a function", hint="name the interpreter after --")
    if options.stdin and options.input == "-":
        raise UsageError("-i and --input - both want standard input", hint="--input @FILE")
    cwd = _working_directory()
    flags = {key: getattr(options, key.replace("-", "_"), None) for key in KEYS}
    settings = settings_of(flags, options.profile, cwd, os.environ)
    if settings.passed_over and not options.quiet:
        say(f"agentctl: {plain(settings.passed_over)}")
    return RunSpec(
        argv=argv,
        target=target,
        input=None if options.input is None else read_input(options.input),
        python=options.python,
        cwd=cwd,
        name=options.name,
        tags=_tags(options.tag),
        stdin=options.stdin,
        origins=settings.origins,
        **_fields(settings),
    ).checked()


def _what(rest: list[str], program: list[str] | None) -> tuple[tuple[str, ...] | None, str | None]:
    """Return ``(argv, None)`` for a program or ``(None, target)`` for a function."""
    if program is not None:
        if rest:
            raise UsageError(
                f"a function ({rest[0][:80]!r}) and a program cannot both be run", hint=_USAGE_HINT
            )
        if not program:
            raise UsageError("no program after --", hint=_USAGE_HINT)
        return tuple(program), None
    if not rest:
        raise UsageError("nothing to run", hint=_USAGE_HINT)
    first = rest[0]
    if ":" not in first:
        # Do not treat it as a program: then "run x.py --time 5s" would have no time limit.
        line = _shown(rest)
        hint = f"agentctl run -- {line}"
        if first.endswith(".py"):
            hint = f"agentctl run {shell_word(first)}:FUNCTION, or agentctl run -- python3 {line}"
        raise UsageError(f"a program needs -- before it: {first[:80]!r}", hint=hint)
    if len(rest) > 1:
        raise UsageError(
            f"a function takes no arguments here: {rest[1][:80]!r}",
            hint="--input JSON passes a value",
        )
    return None, first


def _working_directory() -> str:
    # Stored in the spec, so that a rerun from another directory finds the same files.
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UsageError(
            "the current directory does not exist any more", hint="cd somewhere else"
        ) from None


def _shown(words: list[str]) -> str:
    line = shell_words(words)
    return line if len(line) <= 200 else shell_word(words[0]) + " ..."


def _tags(pairs: list[str]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"not a tag: {pair[:80]!r}", hint="--tag KEY=VALUE")
        tags[key] = value
    return tags


def _fields(settings: Settings) -> dict[str, Any]:
    fields = settings.fields()
    if words := fields.pop("env", ()):
        from agentctl_supervisor.policy.environment import chosen, inherited

        level = fields.get("sandbox", Sandbox.STRICT)
        fields["env"] = {**inherited(level, os.environ), **chosen(words, os.environ)}
    if words := fields.pop("calls_of", ()):
        fields["calls_of"] = budgets(words)
    return fields


def read_input(text: str) -> Any:
    """Return the value that ``--input`` names: JSON, ``@FILE`` or ``-``.  Raises UsageError."""
    if text == "-":
        source, data = "standard input", sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    elif text.startswith("@"):
        source, data = text[1:], _read(text[1:])
    else:
        source, data = "--input", text.encode("utf-8", "surrogateescape")
    if len(data) > MAX_INPUT_BYTES:
        raise UsageError(
            f"{source}: the input is longer than {MAX_INPUT_BYTES} bytes",
            hint="pass the path of a file instead",
        )
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UsageError(
            f"{source[:80]}: not JSON: {what}",
            hint="""quote it for the shell: --input '{"key": 1}', --input '"text"'; or @FILE""",
        ) from None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_INPUT_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"cannot read the input from {path[:200]!r}: {os.strerror(error.errno or 0)}",
            hint="--input @FILE reads FILE; without @ it is JSON itself",
        ) from None
    except ValueError:
        raise UsageError("--input: the path holds a NUL byte") from None
