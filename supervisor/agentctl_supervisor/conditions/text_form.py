"""The text form of conditions, as typed after ``--stop-when``: names, parameters, and output.

Each condition has a short name.  Its first argument needs no name, unless all arguments are
optional and of one kind (``tokens``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from agentctl_supervisor.conditions.composition import AllOf, AnyOf
from agentctl_supervisor.conditions.condition import TerminationCondition
from agentctl_supervisor.conditions.leaves import (
    ExternalTermination,
    FunctionalTermination,
    FunctionCallTermination,
    HandoffTermination,
    MaxMessageTermination,
    SourceMatchTermination,
    StopMessageTermination,
    TextMentionTermination,
    TextMessageTermination,
    TimeoutTermination,
    TokenUsageTermination,
)
from agentctl_supervisor.text.json_text import json_line


class Kind(Enum):
    """The kinds of arguments; the value completes the sentence "... is ..."."""

    TEXT = 'a text in quotes, like "DONE"'
    NAMES = 'a name in quotes, or some: ["critic", "writer"]'
    COUNT = "a whole number"
    DURATION = 'a duration, like "60s" or "1h30m"'
    FLAG = "true or false"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: its name in the text, the field that stores it, and its kind."""

    name: str
    field: str
    kind: Kind
    required: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """The text form of one class of conditions; *first*: the first argument needs no name."""

    condition: type[TerminationCondition]
    parameters: tuple[Parameter, ...] = ()
    first: bool = True
    example: str = ""


FORMS: Final[Mapping[str, Form]] = {
    "text": Form(
        TextMentionTermination,
        (
            Parameter("text", "text", Kind.TEXT, required=True),
            Parameter("source", "sources", Kind.NAMES),
        ),
        example='text("DONE", source="critic")',
    ),
    "max_messages": Form(
        MaxMessageTermination,
        (
            Parameter("max_messages", "max_messages", Kind.COUNT, required=True),
            Parameter("include_agent_event", "include_agent_event", Kind.FLAG),
        ),
        example="max_messages(50)",
    ),
    "tokens": Form(
        TokenUsageTermination,
        (
            Parameter("total", "max_total_token", Kind.COUNT),
            Parameter("prompt", "max_prompt_token", Kind.COUNT),
            Parameter("completion", "max_completion_token", Kind.COUNT),
        ),
        first=False,
        example="tokens(total=10000)",
    ),
    "tool": Form(
        FunctionCallTermination,
        (
            Parameter("name", "function_name", Kind.TEXT, required=True),
            Parameter("result", "result", Kind.TEXT),
        ),
        example='tool("finish", result="ok")',
    ),
    "time": Form(
        TimeoutTermination,
        (Parameter("time", "timeout_seconds", Kind.DURATION, required=True),),
        example='time("60s")',
    ),
    "stop_message": Form(StopMessageTermination, example="stop_message()"),
    "handoff": Form(
        HandoffTermination,
        (Parameter("target", "target", Kind.TEXT, required=True),),
        example='handoff("user")',
    ),
    "source": Form(
        SourceMatchTermination,
        (Parameter("source", "sources", Kind.NAMES, required=True),),
        example='source("critic")',
    ),
    "text_message": Form(
        TextMessageTermination,
        (Parameter("source", "source", Kind.TEXT),),
        example='text_message(source="critic")',
    ),
    "external": Form(ExternalTermination, example="external()"),
}

_NAMES: Final = {form.condition: name for name, form in FORMS.items()}


def to_text(condition: TerminationCondition) -> str:
    """Return *condition* as text, in the form that `text_parser.from_text` reads.

    A `FunctionalTermination` has no text form; it is shown with its function's name.
    """
    if isinstance(condition, AllOf):
        return " & ".join(map(_factor, condition.conditions))
    if isinstance(condition, AnyOf):
        return " | ".join(map(to_text, condition.conditions))
    if isinstance(condition, FunctionalTermination):
        name = getattr(condition.func, "__qualname__", type(condition.func).__qualname__)
        return f"functional({name})"
    name = _NAMES[type(condition)]
    return f"{name}({', '.join(_arguments(condition, FORMS[name]))})"


def _factor(condition: TerminationCondition) -> str:
    text = to_text(condition)
    return f"({text})" if isinstance(condition, AnyOf) else text


def _arguments(condition: TerminationCondition, form: Form) -> list[str]:
    arguments = []
    for at, parameter in enumerate(form.parameters):
        value = getattr(condition, parameter.field)
        if value is None or value is False:
            continue
        label = "" if at == 0 and form.first else f"{parameter.name}="
        arguments.append(label + _value(value, parameter.kind))
    return arguments


def _value(value: Any, kind: Kind) -> str:
    match kind:
        case Kind.TEXT:
            return quoted(value)
        case Kind.NAMES:
            return _names(value)
        case Kind.COUNT:
            return str(value)
        case Kind.FLAG:
            return "true"
        case Kind.DURATION:
            # The condition stores the time to the microsecond.
            return quoted(f"{value:.6f}".rstrip("0").rstrip(".") + "s")


def _names(names: Sequence[str]) -> str:
    if len(names) == 1:
        return quoted(names[0])
    return f"[{', '.join(map(quoted, names))}]"


def quoted(text: str) -> str:
    """Return *text* as a JSON string on one line, with every character visible."""
    return json_line(text)
