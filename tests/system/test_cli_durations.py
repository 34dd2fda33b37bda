"""Durations on the command line: what is understood, what is refused, what is shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl_supervisor.errors import UsageError
from agentctl_supervisor.text.durations import (
    parse_duration,
    parse_limit,
    show_age,
    show_duration,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1.0),
        ("500ms", 0.5),
        ("2m", 120.0),
        ("1h30m", 5400.0),
        ("1d", 86400.0),
        ("1m30s500ms", 90.5),
        ("90", 90.0),
        ("0.5", 0.5),
        ("1.5h", 5400.0),
        ("0", 0.0),
        ("0s", 0.0),
    ],
)
def test_a_duration_is_understood(text: str, seconds: float) -> None:
    """Units may be combined, and a bare number is seconds."""
    assert parse_duration(text, "--grace") == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "s", "1x", "1 s", "-1", "-1s", "+1", "1s1h", "1s1s", "1m1h", "1e3", "inf"),
        *("nan", "1.", ".5", "1..5s", "9" * 300, "1s\n", "--", "1h 30m", "1_0", "none"),
        "\N{ARABIC-INDIC DIGIT ONE}s",
    ],
)
def test_what_is_no_duration_is_refused_with_a_hint(text: str) -> None:
    """A slip is refused, never rounded to something else."""
    with pytest.raises(UsageError) as caught:
        parse_duration(text, "--grace")
    assert caught.value.hint
    assert "--grace" in str(caught.value)
    assert "\n" not in str(caught.value)


_PARTS = st.tuples(
    *(st.one_of(st.none(), st.integers(0, 999)) for _ in ("d", "h", "m", "s", "ms"))
).filter(lambda parts: any(part is not None for part in parts))


@given(_PARTS)
def test_a_duration_is_the_sum_of_its_parts(parts: tuple[int | None, ...]) -> None:
    """Whatever units are combined, in their order, they add up."""
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 0.001}
    text = "".join(
        f"{part}{unit}" for part, unit in zip(parts, units, strict=True) if part is not None
    )
    expected = sum((part or 0) * each for part, each in zip(parts, units.values(), strict=True))

    assert parse_duration(text, "--grace") == pytest.approx(expected)


@given(st.text(max_size=30))
def test_any_text_gives_seconds_or_one_named_error(text: str) -> None:
    """Nothing that can be typed gives another exception, or a time that is no time."""
    try:
        seconds = parse_duration(text, "--grace")
    except UsageError:
        return
    assert 0 <= seconds < 1e9


def test_a_limit_of_none_is_off_and_of_zero_refused() -> None:
    """No limit has one word for it, and 0 is not that word."""
    assert parse_limit("none", "--time") is None
    assert parse_limit("2m", "--time") == 120
    for zero in ("0", "0s", "0ms", "0.0"):
        with pytest.raises(UsageError) as caught:
            parse_limit(zero, "--time")
        assert "--time none" in caught.value.hint


@given(st.floats(min_value=0, max_value=1e8))
def test_what_is_shown_is_close_and_short(seconds: float) -> None:
    """What a person reads fits a column."""
    assert 0 < len(show_duration(seconds)) <= 9
    assert 0 < len(show_age(seconds)) <= 6


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.004, "0.00 s"), (0.5, "0.5 s"), (9.96, "10 s"), (59.7, "1m"), (200, "3m 20s")],
)
def test_durations_are_shown_as_people_say_them(seconds: float, shown: str) -> None:
    """Two figures are enough, and 60 seconds are a minute."""
    assert show_duration(seconds) == shown
