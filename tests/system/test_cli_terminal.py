"""What untrusted text can do to a person's terminal: nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl_supervisor.cli.terminal.console import clip, plain, width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link", "alink"),
        ("a\x1bPq#0\x1b\\b", "ab"),
        ("a\x9b2Jb", "ab"),
        ("over\rwritten", "over written"),
        ("two\nlines", "two lines"),
        ("bell\x07", "bell?"),
        ("\u202egnp.exe", "?gnp.exe"),
        ("torn \x1b[", "torn "),
        ("lone \udcff", "lone \\xff"),
        ("größe", "größe"),
    ],
)
def test_control_sequences_are_taken_out(text: str, shown: str) -> None:
    """Colours, titles, cursor movements and reversed text do not reach the terminal."""
    assert plain(text) == shown


@given(st.text())
def test_nothing_that_a_terminal_acts_upon_is_left(text: str) -> None:
    """Whatever it was, it is one line of printable characters."""
    assert all(char.isprintable() for char in plain(text))


@given(st.text(), st.integers(0, 100))
def test_clipped_text_fits(text: str, columns: int) -> None:
    """A cell is never wider than its column, wide characters included."""
    assert width(clip(text, columns)) <= columns
