"""Termination conditions: rules that end a run, as limits and people also can.

The classes have AutoGen's names and constructors.  They are combined with `|` and `&`::

    TextMentionTermination("TERMINATE", sources=["critic"]) | MaxMessageTermination(50)

A condition can also be written as text, for a command line, and as JSON::

    from_text('text("TERMINATE", source="critic") | max_messages(50)')

A `Judge` tells which conditions fired in one run.  `leaves` lists the intended differences
from AutoGen.
"""

from agentctl_protocol.report import FiredCondition
from agentctl_supervisor.conditions.composition import AllOf, AnyOf, Condition
from agentctl_supervisor.conditions.condition import Judged, TerminationCondition
from agentctl_supervisor.conditions.condition_error import ConditionError
from agentctl_supervisor.conditions.functions import Question
from agentctl_supervisor.conditions.json_form import from_json, from_value, to_json
from agentctl_supervisor.conditions.judge import Judge
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
from agentctl_supervisor.conditions.text_form import to_text
from agentctl_supervisor.conditions.text_parser import from_text

__all__ = [
    "AllOf",
    "AnyOf",
    "Condition",
    "ConditionError",
    "ExternalTermination",
    "FiredCondition",
    "FunctionCallTermination",
    "FunctionalTermination",
    "HandoffTermination",
    "Judge",
    "Judged",
    "MaxMessageTermination",
    "Question",
    "SourceMatchTermination",
    "StopMessageTermination",
    "TerminationCondition",
    "TextMentionTermination",
    "TextMessageTermination",
    "TimeoutTermination",
    "TokenUsageTermination",
    "from_json",
    "from_text",
    "from_value",
    "to_json",
    "to_text",
]
