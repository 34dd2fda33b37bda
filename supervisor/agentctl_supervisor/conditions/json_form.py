"""Converts conditions to JSON and back: maps whose ``type`` is the name in the text form.

The other keys are the parameters of the class: ``{"type": "text", "text": "DONE"}``.
``any`` and ``all`` hold their ``conditions``.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from agentctl_protocol.errors import UNREADABLE, one_line
from agentctl_supervisor.conditions.composition import Condition, leaves_of
from agentctl_supervisor.conditions.condition import TerminationCondition
from agentctl_supervisor.conditions.condition_error import ConditionError, shown
from agentctl_supervisor.conditions.leaves import FunctionalTermination
from agentctl_supervisor.conditions.text_form import FORMS
from agentctl_supervisor.conditions.text_parser import from_text
from agentctl_supervisor.text.suggestions import closest

MAX_JSON_BYTES: Final = 4 << 20

_UNKNOWN: Final = re.compile(r"Invalid value '(?P<word>.*)'( - at `.*\.type`)?", re.DOTALL)
_EXAMPLE: Final = 'for example {"type": "text", "text": "DONE"}'
_decoder: Final = msgspec.json.Decoder(Condition)
_ONLY_PYTHON: Final = "functions are given in Python only"
_NAMES: Final = (*FORMS, "any", "all")


def from_json(data: str | bytes) -> Condition:
    """Return the condition in the JSON text *data*.

    Raises:
        ConditionError: *data* is not a condition.
    """
    if len(data) > MAX_JSON_BYTES:
        raise ConditionError(f"a condition's JSON is longer than {MAX_JSON_BYTES} bytes")
    try:
        decoded: Condition = _decoder.decode(data)
    except (*UNREADABLE, UnicodeEncodeError) as error:
        raise _translated(error) from None
    return decoded


def to_json(condition: TerminationCondition) -> bytes:
    """Return *condition* as JSON, in the form that `from_json` reads.

    Raises:
        ConditionError: a function is part of it.
    """
    if any(isinstance(leaf, FunctionalTermination) for leaf in leaves_of(condition)):
        raise ConditionError("a function cannot be written as JSON", _ONLY_PYTHON)
    return msgspec.json.encode(condition)


def from_value(value: object) -> Condition:
    """Return the condition in *value*: its text form, its JSON, or the map decoded from JSON.

    Raises:
        ConditionError: *value* is not a condition.
    """
    if isinstance(value, str):
        return from_json(value) if value.lstrip().startswith("{") else from_text(value)
    if not isinstance(value, Mapping):
        raise ConditionError(f"a {type(value).__name__} is no condition", "give a text or a map")
    try:
        converted: Condition = msgspec.convert(value, Condition)
    except (*UNREADABLE, UnicodeEncodeError) as error:
        raise _translated(error) from None
    return converted


def _translated(error: Exception) -> ConditionError:
    told = one_line(error)
    if (unknown := _UNKNOWN.fullmatch(told)) is not None:
        word = unknown["word"]
        close = closest(word, _NAMES)
        hint = f"did you mean {close}?" if close else f"there are {', '.join(_NAMES)}"
        return ConditionError(f"no condition {shown(word)}", hint)
    if "`func`" in told or "`Callable`" in told:
        return ConditionError("a function cannot be written as JSON", _ONLY_PYTHON)
    return ConditionError(f"not a condition: {told}", _EXAMPLE)
