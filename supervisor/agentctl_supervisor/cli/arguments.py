"""Parses the command line: the commands, their options, and the errors for wrong use."""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Final

from agentctl_protocol import __version__
from agentctl_supervisor.cli.parser import DURATION, Parser, command_parser
from agentctl_supervisor.errors import UsageError
from agentctl_supervisor.text.suggestions import closest

HELP: Final = """\
Run agents and untrusted code in sandboxes of their own; really stop them.

Usage: agentctl COMMAND [OPTIONS]

Start and stop
  run         Run a program or a Python function, and stay until it ends
  stop        Stop runs: ask, then SIGTERM, then SIGKILL the whole tree
  kill        SIGKILL the whole tree now
  rerun       Start a new run with the settings of an old one
  resume      Go on where a stopped, failed or lost run ended
Steer
  approve     Let a run make a call that waits for approval (run --approve)
  deny        Refuse a call that waits for approval
  signal      Fire a run's external() condition (run --stop-when)
Look
  ps          List runs (-a: finished ones too)
  show        One run in full: why it ended, its processes, calls and output
  logs        Print what a run wrote (-f: follow it to its end)
  events      All that is known of a run, as JSON Lines (-f: follow it)
  wait        Wait until runs have ended
Keep house
  export      Write a run's spec, log, report and artifacts to a tar file
  prune       Delete finished runs
  doctor      Check what protects runs on this machine
  help        Say more about a command

Examples
  agentctl run -- python agent.py
  agentctl run --name nightly --time 10m -d -- ./agent.sh
  agentctl stop nightly

RUN is a name, an id, or the start of one.  More: agentctl help COMMAND"""


def _run_parser() -> Parser:
    parser = command_parser(
        "run",
        "[OPTIONS] -- PROGRAM ARG...\n"
        "       agentctl run [OPTIONS] (module:function | path.py:function)",
        "Run a program, or a Python function, in a sandbox of its own until it ends.\n"
        "Its output passes through unchanged; a function's value is printed as JSON.\n"
        "Ctrl-C stops it, a second Ctrl-C kills it.",
        f"{DURATION}.\n"
        "exit code: the program's own, 128+n for signal n, 130 after Ctrl-C, 143 or 137\n"
        "when stopped by others, 124 at a limit, 125 if agentctl failed, 126 or 127 if\n"
        "the program could not be executed or found.",
        examples=(
            "agentctl run -- python agent.py --fast",
            "agentctl run --name nightly --time 10m --net host -d -- ./agent.sh",
            """agentctl run --input '["stop"]' count.py:main""",
        ),
        as_json="print the report as JSON; the program's own stdout goes to stderr",
    )
    add = parser.add_argument
    add("--name", help="a name for the run, unique among those that live")
    add("--tag", action="append", default=[], metavar="K=V", help="a label; may be repeated")
    add("-p", "--profile", metavar="NAME", help="settings of agentctl.toml; none: of no file")
    add("--time", metavar="DUR", help="hard limit on the time that it may take (default: none)")
    add("--grace", metavar="DUR", help="how long it may take to obey when asked to stop (5s)")
    add("--term-grace", metavar="DUR", help="how long after SIGTERM it is killed (2s)")
    add("--python", metavar="PATH", help="the interpreter for a function (default: ours)")
    add("--input", metavar="JSON|@FILE|-", help="the function's argument")
    add("-d", dest="detach", action="store_true", help="print the id and leave it running")
    add("-i", dest="stdin", action="store_true", help="pass standard input on (default: none)")
    add("-q", dest="quiet", action="store_true", help="say nothing of our own")
    _add_sandbox_options(parser)
    _add_call_options(parser)
    add("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _add_sandbox_options(parser: Parser) -> None:
    add = parser.add_argument_group("what it is given").add_argument
    add("--sandbox", metavar="LEVEL", help="strict (default), standard, basic or none")
    add("--workspace", metavar="DIR", help="what it may write to (default: here, if that is fit)")
    add("--ro", action="append", default=[], metavar="PATH", help="more that it may read")
    add("--rw", action="append", default=[], metavar="PATH", help="more that it may write to")
    add(
        "--unprotect",
        action="append",
        default=[],
        metavar="NAME",
        help="a name in the workspace that it may change after all: .git/hooks",
    )
    add("--env", action="append", default=[], metavar="NAME[=V]", help="a variable of yours, or V")
    add("--net", metavar="NET", help="none (default): its own loopback; host: your network")
    add("--explain", action="store_true", help="say what it would be given, and run nothing")


def _add_call_options(parser: Parser) -> None:
    group = parser.add_argument_group("which calls it may make, and when it has done enough")
    add = group.add_argument
    add("--calls", metavar="N", help="model and tool calls that it may make (default: no limit)")
    add("--tokens", metavar="N", help="tokens that it may use (default: no limit)")
    for option, metavar, text in (
        ("--calls-of", "NAME=N", "calls that it may make of one tool"),
        ("--allow", "NAME", "calls that alone it may make: read_*, model:gpt-*, shell:ls *"),
        ("--deny", "NAME", "calls that it may not make"),
        ("--approve", "NAME", "calls that wait for agentctl approve or deny"),
    ):
        add(option, action="append", default=[], metavar=metavar, help=text)
    add("--stop-when", metavar="COND", help='end it when: max_messages(9) | text("DONE")')


def _stop_parser() -> Parser:
    parser = command_parser(
        "stop",
        "[OPTIONS] RUN...",
        "Stop runs: ask, wait, SIGTERM, wait, SIGKILL the whole tree, and prove that it\nis gone.",
        f"{DURATION}.\n"
        "exit code: 0 when all are gone (or were already), 1 if something survives, 4 if\n"
        "there is no such run.",
        examples=(
            "agentctl stop nightly",
            "agentctl stop --grace 30s --reason 'out of budget' nightly r-7k2m9qab",
            "agentctl stop --all -o json",
        ),
    )
    add = parser.add_argument
    add("runs", nargs="*", metavar="RUN")
    add("--all", action="store_true", help="every run that lives")
    add("--grace", metavar="DUR", help="how long it may take to obey (default: the run's own)")
    add("--term-grace", metavar="DUR", help="how long after SIGTERM it is killed")
    add("--reason", metavar="TEXT", default="", help="why, for the log and the report")
    return parser


def _kill_parser() -> Parser:
    parser = command_parser(
        "kill",
        "[OPTIONS] RUN...",
        "SIGKILL the whole tree of runs now, without asking, and prove that it is gone.",
        "exit code: 0 when all are gone (or were already), 1 if something survives, 4 if\n"
        "there is no such run.",
        examples=(
            "agentctl kill nightly",
            "agentctl kill --reason 'it ate the disk' nightly",
            "agentctl kill --all",
        ),
    )
    parser.add_argument("runs", nargs="*", metavar="RUN")
    parser.add_argument("--all", action="store_true", help="every run that lives")
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, for the log")
    return parser


def _ps_parser() -> Parser:
    parser = command_parser(
        "ps",
        "[OPTIONS]",
        "List the runs that live, the newest first.",
        examples=("agentctl ps", "agentctl ps -a -o json", "agentctl stop $(agentctl ps -q)"),
    )
    parser.add_argument("-a", "--all", action="store_true", help="finished ones too")
    parser.add_argument("-q", dest="ids", action="store_true", help="only ids")
    return parser


def _show_parser() -> Parser:
    parser = command_parser(
        "show",
        "[OPTIONS] RUN",
        "Show one run in full: why it ended, its processes, calls, usage and last output.",
        "exit code: 0, or 4 if there is no such run.",
        as_json="print the whole report as JSON",
        examples=(
            "agentctl show nightly",
            "agentctl show r-7k2m9qab",
            "agentctl show nightly -o json | jq .result",
        ),
    )
    parser.add_argument("runs", nargs="*", metavar="RUN")
    return parser


MODULES: Final = {
    command: f"agentctl_supervisor.cli.commands.{command}"
    for command in (
        *("approve", "deny", "signal", "resume", "export"),
        *("wait", "logs", "events", "rerun", "prune", "doctor"),
    )
}
"""The commands whose module has both ``parser()`` and ``run(options)``."""


def _parser_of(command: str) -> Parser:
    parser: Parser = import_module(MODULES[command]).parser()
    return parser


_PARSERS: Final[dict[str, Callable[[], Parser]]] = {
    "run": _run_parser,
    "stop": _stop_parser,
    "kill": _kill_parser,
    "ps": _ps_parser,
    "show": _show_parser,
    **{command: partial(_parser_of, command) for command in MODULES},
}


def parse(argv: list[str]) -> tuple[str, argparse.Namespace]:
    """Return the command that *argv* names, and its options.

    ``help`` and ``version`` are commands, too; `text_for` returns what they print.

    Raises:
        UsageError: *argv* is not a valid command line.
    """
    command, rest = (argv[0], argv[1:]) if argv else ("help", [])
    if command in ("-h", "--help"):
        command = "help"
    if command in ("-V", "--version"):
        command, rest = "version", []
    if command == "help":
        topic = next((word for word in rest if not word.startswith("-")), None)
        if topic is not None and topic != "help":
            _known(topic)
        return "help", argparse.Namespace(topic=topic)
    if command == "version":
        return command, argparse.Namespace()
    _known(command)
    # Words after "--" are not our options, and argparse would drop a second "--" among them.
    before, after = _split(rest)
    parser = _PARSERS[command]()
    if _wants_help(command, before):
        return "help", argparse.Namespace(topic=command)
    if command == "run":
        return command, _parse_run(parser, before, after)
    options, unknown = parser.parse_known_intermixed_args(before)
    _refuse_unknown(parser, unknown)
    return command, _take_operands(command, options, after or [])


def _known(command: str) -> None:
    if command not in _PARSERS:
        guess = closest(command, _PARSERS)
        raise UsageError(
            f"no such command: {command[:80]!r}",
            hint=f"did you mean agentctl {guess}?" if guess else "agentctl help",
        )


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    if "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _wants_help(command: str, words: list[str]) -> bool:
    if command == "run":
        # After the first word that is not an option, -h belongs to the program or function.
        return bool(words) and words[0] in ("-h", "--help")
    return "-h" in words or "--help" in words


def _parse_run(parser: Parser, before: list[str], program: list[str] | None) -> argparse.Namespace:
    options, unknown = parser.parse_known_args(before)
    _refuse_unknown(parser, unknown)
    if len(options.rest) > 1 and ":" in options.rest[0]:
        # agentctl run module:function --time 5s
        more, unknown = parser.parse_known_args([*before[: -len(options.rest)], *options.rest[1:]])
        _refuse_unknown(parser, unknown)
        more.rest = [options.rest[0], *more.rest]
        options = more
    options.program = program
    return options


def _refuse_unknown(parser: Parser, unknown: Sequence[str]) -> None:
    if not unknown:
        return
    word = unknown[0].partition("=")[0]
    if not word.startswith("-"):
        parser.error(f"unexpected argument: {word[:80]!r}")
    known = [option for option in parser._option_string_actions if option != "--help"]  # noqa: SLF001
    guess = closest(word, known)
    raise UsageError(
        f"{parser.prog} has no option {word[:80]!r}",
        hint=f"did you mean {guess}?" if guess else f"agentctl help {parser.prog.split()[-1]}",
    )


def _take_operands(
    command: str, options: argparse.Namespace, after: list[str]
) -> argparse.Namespace:
    """Add the words after ``--`` as operands, even if they look like options."""
    if hasattr(options, "runs"):
        options.runs = [*options.runs, *after]
    elif after:
        raise UsageError(f"unexpected argument: {after[0][:80]!r}", hint=f"agentctl help {command}")
    return options


def text_for(command: str, options: argparse.Namespace) -> str:
    """Return the text that ``help [COMMAND]`` or ``version`` prints."""
    if command == "version":
        return f"agentctl {__version__}"
    if options.topic in (None, "help"):
        return HELP
    return _PARSERS[options.topic]().format_help().rstrip()
