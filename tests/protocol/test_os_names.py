"""Names of the operating system's as text: reversible, and never another name."""

import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl_protocol.os_names import display, to_bytes, to_native, to_text
from agentctl_protocol.spec import RunSpec, SpecError

names = st.binary().filter(lambda name: b"\0" not in name)


@given(names)
def test_every_name_has_one_text_that_can_be_sent(name: bytes) -> None:
    """Through msgpack and JSON and back; from bytes and from Python's own form alike."""
    text = to_text(name)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(text)) == text
    assert msgspec.json.decode(msgspec.json.encode(text)) == text
    assert to_bytes(text) == name
    assert to_text(os.fsdecode(name)) == text
    assert to_native(text) == os.fsdecode(name)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_a_name_in_utf8_is_its_own_text(name: str) -> None:
    """Whatever could be said before is said as before."""
    assert to_text(name.encode()) == name


@pytest.mark.parametrize(
    "text", ["\0", "a\0zz", "a\0", "\0e", "\0E9", "\x0041", "\x00c3\x00a9"], ids=ascii
)
def test_a_text_that_is_no_names_is_refused(text: str) -> None:
    """Nor is one that is another spelling of a name which has a text of its own."""
    for form in (to_bytes, to_native):
        with pytest.raises(ValueError, match="not a name"):
            form(text)


@given(st.text(st.characters()))
def test_what_is_shown_can_always_be_encoded(text: str) -> None:
    """Whichever form a name in it has."""
    display(text).encode()


def test_a_byte_is_shown_alike_from_each_form() -> None:
    """As people know it from Python and C."""
    name = b"jos\xe9\xc3\xa9"
    assert display(to_text(name)) == display(os.fsdecode(name)) == "jos\\xe9\u00e9"


def test_a_spec_is_written_and_opened() -> None:
    """Every field that holds names, and none that holds something else."""
    odd = os.fsdecode(b"/jos\xe9")
    spec = RunSpec(
        argv=[odd],
        cwd=odd,
        env={odd: odd},
        workspace=odd,
        ro=(odd,),
        rw=(odd,),
        unprotect=(odd,),
        origins={"sandbox": f"{odd}/agentctl.toml"},
    ).checked()
    stored = msgspec.json.decode(msgspec.json.encode(spec.stored()), type=RunSpec)
    assert stored.env_names == ("/jos\0e9",)
    assert stored.origins == {"sandbox": "/jos\\xe9/agentctl.toml"}
    expected = msgspec.structs.replace(
        spec, env=None, env_names=(odd,), origins={"sandbox": "/jos\\xe9/agentctl.toml"}
    )
    assert stored.opened() == expected
    assert msgspec.json.decode(msgspec.json.encode(spec.written()), type=RunSpec).opened().env == {
        odd: odd
    }


@pytest.mark.parametrize("field", ["cwd", "workspace", "python"])
def test_a_str_that_stands_for_no_bytes_is_a_named_error(field: str) -> None:
    """Python can hold what the system has no name for."""
    spec = RunSpec(target="m:f", **{field: "/\ud800"})  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="cannot be encoded"):
        spec.checked()
