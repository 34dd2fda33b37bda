"""``docs/protocol.md`` says what the code does: messages, fields, types, states, words."""

import re
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from agentctl_protocol import control, records, report, spawning, vocabulary
from agentctl_protocol import messages as m
from agentctl_protocol.channel_state import (
    AGENT_SAYS,
    SUPERVISOR_SAYS,
    AgentState,
    SupervisorState,
)
from agentctl_testkit import REPOSITORY

DOCUMENT = (REPOSITORY / "docs" / "protocol.md").read_text()

CHAPTERS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "### Messages of the agent": m.ChildMessage.__args__,
    "### Events": m.Event.__args__,
    "### Messages of the supervisor": (
        m.Start,
        m.Resumed,
        m.PastCall,
        *m.SupervisorMessage.__args__[1:],
    ),
    "### Records of the supervisor": records.SupervisorRecord.__args__,
    "### Parts of records and reports": (
        spawning.ProcessIdentity,
        report.Actor,
        report.Processes,
        report.Survivor,
        report.Workspace,
    ),
    "### Requests": control.Request.__args__,
    "### Answers": control.Reply.__args__,
    "## The report": (
        report.Report,
        report.LadderStep,
        report.Call,
        report.WaitingCall,
        report.FiredCondition,
        report.UsageTotal,
        report.LogSummary,
        report.Limit,
    ),
}


_PLAIN_TYPES = {
    inspect.AnyType: "any",
    inspect.NoneType: "nil",
    inspect.BoolType: "bool",
    inspect.BytesType: "bin",
    inspect.RawType: "value",
    inspect.DateTimeType: "time",
}


def type_in_words(kind: inspect.Type) -> str:
    """How the document writes a type."""
    match kind:
        case inspect.IntType(ge=least) | inspect.FloatType(ge=least):
            name = "int" if isinstance(kind, inspect.IntType) else "float"
            return name if least is None else f"{name} ≥ {least:g}"
        case inspect.StrType(min_length=shortest, max_length=longest):
            return "str" if longest is None else f"str, {shortest or 0} to {longest}"
        case inspect.LiteralType(values=values):
            return " ".join(f"`{value}`" for value in values)
        case inspect.EnumType(cls=named) | inspect.StructType(cls=named):
            return named.__name__
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return f"array of {type_in_words(item)}"
        case inspect.DictType(key_type=key, value_type=value):
            return f"map of {type_in_words(key)} to {type_in_words(value)}"
        case inspect.UnionType(types=types) if len(types) == len(m.Event.__args__):
            return "event"
        case inspect.UnionType(types=types):
            return " or ".join(type_in_words(one) for one in types)
        case _:
            return _PLAIN_TYPES[type(kind)]


def default_in_words(field: inspect.Field) -> str:
    """How the document writes a default."""
    if field.required:
        return "required"
    value: Any = field.default
    if value is msgspec.NODEFAULT:
        assert field.default_factory is not msgspec.NODEFAULT
        value = field.default_factory()
    match value:
        case None | msgspec.Raw():
            return "`nil`"
        case str():
            return f'`"{value}"`'
        case False:
            return "`false`"
        case ():
            return "`[]`"
        case _:
            return f"`{value!r}`"


def name_of(struct: type[msgspec.Struct]) -> str:
    """The heading under which the document describes *struct*."""
    return str(struct.__struct_config__.tag or struct.__name__)


def chapter(heading: str) -> str:
    """The text from *heading* to the next one of its level or above."""
    level = len(heading) - len(heading.lstrip("#"))
    _, found, rest = DOCUMENT.partition(f"\n{heading}\n")
    assert found, f"no chapter {heading!r}"
    return re.split(rf"\n#{{1,{level}}} ", rest)[0]


def sections(heading: str) -> dict[str, str]:
    """What the chapter says under each ``#### `name` ``."""
    parts = re.split(r"\n#### `(\w+)`\n", chapter(heading))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """The cells of the first table in *text*, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("heading", list(CHAPTERS))
def test_a_chapter_lists_exactly_what_the_code_has(heading: str) -> None:
    """Nothing is missing from a closed list, and nothing is in it that the code lacks."""
    assert list(sections(heading)) == [name_of(struct) for struct in CHAPTERS[heading]]


@pytest.mark.parametrize(
    ("heading", "struct"),
    [
        pytest.param(heading, struct, id=f"{heading.strip('# ')}: {name_of(struct)}")
        for heading, structs in CHAPTERS.items()
        for struct in structs
    ],
)
def test_a_table_lists_exactly_the_fields(heading: str, struct: type[msgspec.Struct]) -> None:
    """Each field is there with its type, its default and a meaning."""
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    table = rows(sections(heading)[name_of(struct)])

    assert [row[:3] for row in table] == [
        [f"`{field.name}`", type_in_words(field.type), default_in_words(field)]
        for field in info.fields
    ]
    assert all(row[3] for row in table)


@pytest.mark.parametrize(
    ("heading", "table", "states"),
    [
        ("### What an agent may say when", AGENT_SAYS, AgentState),
        ("### What a supervisor may say when", SUPERVISOR_SAYS, SupervisorState),
    ],
)
def test_the_state_tables_are_those_of_the_code(
    heading: str, table: dict[tuple[Any, str], Any], states: Any
) -> None:
    """Each state has its row, with every message that is legal in it and where that leads."""
    written = {}
    for state, says in rows(chapter(heading)):
        for tag, after in re.findall(r"`(\w+)`(?: → ([a-z ]+))?", says):
            name = state.removesuffix(" (first)")
            written[states(name), tag] = states(after or name)

    assert written == table


@pytest.mark.parametrize(
    "words",
    [
        vocabulary.State,
        vocabulary.Result,
        vocabulary.Reason,
        vocabulary.Rung,
        vocabulary.Sandbox,
        vocabulary.Network,
        vocabulary.Containment,
    ],
)
def test_the_words_are_those_of_the_code(words: Any) -> None:
    """Every word of every closed list is there, in the code's order, and no other."""
    written = [row[0].strip("`") for row in rows(chapter(f"### {words.__name__}"))]

    assert sorted(written) == sorted(words)


def test_the_numbers_are_those_of_the_code() -> None:
    """Limits and versions that the prose mentions."""
    for number in (f"{m.Start(run='').max_frame:,}", f"{records.MAX_BODY:,}"):
        assert number in DOCUMENT
    assert f"Version {m.PROTOCOL_VERSION}, frozen" in DOCUMENT
    assert f"format version, {records.FORMAT_VERSION} (u32)" in DOCUMENT
    assert f"{control.MAX_CONTROL_FRAME >> 20} MiB" in DOCUMENT
    assert f"within {control.PING_TIMEOUT_S:g} s" in DOCUMENT
