"""The assembled programs, run by an interpreter of classic BPF that knows nothing of the rules.

What the kernel would answer to any number with any arguments is compared with what
the rules say, for both architectures, without making a call.
"""

import errno
import itertools
import struct
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl_child.sandbox import bpf, keeper_filter, surface_filter, syscall_numbers
from agentctl_child.sandbox.bpf import Condition, Rule
from agentctl_protocol.vocabulary import Network

AUDIT_ARCH: Final = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
I386: Final = 0x4000_0003
ALLOW: Final = 0x7FFF_0000
KILL: Final = 0x8000_0000
ERRNO: Final = 0x0005_0000
X32: Final = 0x4000_0000
WORD: Final = 0xFFFF_FFFF

KEEPERS: Final = ((100, 4242, 77), (100, 4000))
RULE_SETS: Final = {
    "strict": surface_filter.rules(network=Network.HOST, unix_sockets=True, shares_host=False),
    "standard": surface_filter.rules(
        network=Network.NONE, unix_sockets=False, shares_host=True, truncation=False
    ),
    "nested": surface_filter.rules(
        network=Network.HOST, unix_sockets=False, shares_host=True, user_namespaces=True
    ),
    "keepers": keeper_filter.rules(*KEEPERS),
    "nothing": (),
}
MACHINES: Final = ("x86_64", "aarch64")
PROGRAMS: Final = {
    (name, machine): bpf.assemble(rules, machine)
    for name, rules in RULE_SETS.items()
    for machine in MACHINES
}
EVERY_PROGRAM: Final = pytest.mark.parametrize(("name", "machine"), PROGRAMS, ids=str)


def run(program: bytes, number: int, arguments: Sequence[int], arch: int) -> tuple[int, int]:
    """What *program* returns, and after how many instructions.

    Raises:
        AssertionError: the kernel's checker would refuse it.
    """
    data = struct.pack("<iIQ6Q", number - (number >> 31 << 32), arch, 0, *arguments)
    code = list(struct.iter_unpack("=HBBI", program))
    accumulator, place, steps = 0, 0, 0
    while True:
        operation, if_true, if_false, value = code[place]
        place, steps = place + 1, steps + 1
        match operation:
            case 0x20:
                assert value % 4 == 0
                assert value < len(data)
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x54:
                accumulator &= value
            case 0x05:
                place += value
            case 0x15:
                place += if_true if accumulator == value else if_false
            case 0x35:
                place += if_true if accumulator >= value else if_false
            case 0x06:
                return value, steps
            case _:
                raise AssertionError(f"operation {operation:#x}")


def holds(condition: Condition, arguments: Sequence[int]) -> bool:
    seen = arguments[condition.argument] & WORD & condition.mask
    return (seen in {value & WORD for value in condition.values}) is not condition.negated


def said(rules: Sequence[Rule], machine: str, number: int, arguments: Sequence[int]) -> int:
    """What the rules say, read one after the other."""
    if machine == "x86_64" and number >= X32:
        return ALLOW if number == WORD else ERRNO | errno.ENOSYS
    for rule in rules:
        if syscall_numbers.number(rule.call, machine) == number and all(
            holds(condition, arguments) for condition in rule.only_if
        ):
            return ERRNO | rule.answer
    return ALLOW


def interesting(rules: Sequence[Rule]) -> list[int]:
    """The values that rules compare with, and their neighbours."""
    found = {0, 1, WORD, 1 << 32, (1 << 64) - 1}
    for rule in rules:
        for condition in rule.only_if:
            for value in (*condition.values, condition.mask):
                low = value & WORD
                found |= {low, low ^ 1, low | 1 << 32, low | 0x8_0000, (low + 1) & WORD}
                found |= {bit for i in range(32) if (bit := 1 << i) & condition.mask & WORD}
    return sorted(found)


NUMBERS: Final = {
    machine: sorted(
        {
            near
            for columns in syscall_numbers.NUMBERS.values()
            if (number := dict(zip(MACHINES, columns, strict=True))[machine]) is not None
            for near in (number - 1, number, number + 1, number | X32)
            if near >= 0
        }
    )
    for machine in MACHINES
}
EVERYTHING: Final = interesting([rule for rules in RULE_SETS.values() for rule in rules])


@st.composite
def calls(draw: st.DrawFn) -> tuple[tuple[str, str], int, list[int]]:
    """One of the programs, a number, and six arguments."""
    which = draw(st.sampled_from(sorted(PROGRAMS)))
    number = draw(st.sampled_from(NUMBERS[which[1]]) | st.integers(0, WORD))
    word = st.sampled_from(EVERYTHING) | st.integers(0, (1 << 64) - 1)
    return which, number, draw(st.lists(word, min_size=6, max_size=6))


@given(call=calls())
def test_a_program_answers_as_its_rules_say(call: tuple[tuple[str, str], int, list[int]]) -> None:
    """Whatever the number and arguments, the assembled tree agrees with the list of rules."""
    (name, machine), number, arguments = call

    answer, _ = run(PROGRAMS[name, machine], number, arguments, AUDIT_ARCH[machine])

    assert answer == said(RULE_SETS[name], machine, number, arguments)


@EVERY_PROGRAM
def test_every_number_is_answered_as_the_rules_say(name: str, machine: str) -> None:
    """All numbers that a kernel could have, with no argument set and with all bits set."""
    rules, program = RULE_SETS[name], PROGRAMS[name, machine]
    wrong = [
        (number, arguments)
        for number in (*range(600), *NUMBERS[machine], X32, WORD - 1, WORD)
        for arguments in ([0] * 6, [WORD] * 6, [(1 << 64) - 1] * 6)
        if run(program, number, arguments, AUDIT_ARCH[machine])[0]
        != said(rules, machine, number, arguments)
    ]

    assert not wrong


@EVERY_PROGRAM
def test_every_rule_can_answer(name: str, machine: str) -> None:
    """No rule is hidden by one before it: some arguments get its error."""
    hidden = []
    for rule in RULE_SETS[name]:
        number = syscall_numbers.number(rule.call, machine)
        if number is None:
            continue
        about_it = [other for other in RULE_SETS[name] if other.call == rule.call]
        values = [{0, 1, 2, 3, WORD} for _ in range(6)]
        for condition in (each for other in about_it for each in other.only_if):
            values[condition.argument] |= {value & WORD for value in condition.values}
            values[condition.argument].add(condition.mask)
        if not any(
            run(PROGRAMS[name, machine], number, [*arguments, 0, 0], AUDIT_ARCH[machine])[0]
            == ERRNO | rule.answer
            and all(holds(condition, arguments) for condition in rule.only_if)
            for arguments in itertools.product(*values[:4])
        ):
            hidden.append(rule)

    assert not hidden


@EVERY_PROGRAM
def test_another_architecture_is_killed_whatever_it_calls(name: str, machine: str) -> None:
    """The first thing that a program looks at is whose numbers these are."""
    others = {I386, 0, WORD, *AUDIT_ARCH.values()} - {AUDIT_ARCH[machine]}

    for arch in others:
        for number in (0, 20, 62, 101, X32, WORD):
            assert run(PROGRAMS[name, machine], number, [0] * 6, arch)[0] == KILL


@EVERY_PROGRAM
def test_a_call_costs_few_instructions_and_the_kernel_takes_the_program(
    name: str, machine: str
) -> None:
    """An allowed call without rules passes in at most 16 instructions, and loads no argument.

    The kernel (5.11) then knows that the number is always allowed, and runs no filter for it.
    """
    program = PROGRAMS[name, machine]
    ruled = {syscall_numbers.number(rule.call, machine) for rule in RULE_SETS[name]}
    free = [number for number in range(500) if number not in ruled]

    # Had it loaded an argument, then one of these answers would differ or the steps would.
    runs = {
        number: {
            run(program, number, [value] * 6, AUDIT_ARCH[machine])
            for value in (0, 1, WORD, 1 << 20)
        }
        for number in free
    }

    assert len(program) // 8 <= bpf.LONGEST_PROGRAM
    assert all(len(found) == 1 for found in runs.values())
    assert max(steps for found in runs.values() for _, steps in found) <= 16


def test_what_a_tracer_has_cancelled_is_let_pass() -> None:
    """Number -1 is no call: an error for it would overwrite what the tracer has answered."""
    program = PROGRAMS["strict", "x86_64"]

    assert run(program, WORD, [0] * 6, AUDIT_ARCH["x86_64"])[0] == ALLOW
    assert run(program, WORD - 1, [0] * 6, AUDIT_ARCH["x86_64"])[0] == ERRNO | errno.ENOSYS


def test_long_programs_are_jumped_over() -> None:
    """Jumps of more than 255 instructions, which conditional ones cannot make, arrive."""
    many = tuple(range(1, 200))
    rules = [
        Rule("getppid", errno.EPERM, "", "", (Condition(0, many), Condition(1, (7,)))),
        Rule("getppid", errno.EACCES, "", "", (Condition(0, many, negated=True),)),
        Rule("kill", errno.EPERM, "", "", (Condition(0, many),)),
        Rule("fcntl", errno.EPERM, "", "", (Condition(0, many),)),
        Rule("ptrace", errno.EPERM, ""),
    ]
    program = bpf.assemble(rules, "x86_64")
    cases = [
        (name, [a, b, 0, 0, 0, 0])
        for name in ("getppid", "kill", "fcntl", "ptrace", "ioctl")
        for a in (0, 1, 199, 200)
        for b in (0, 7)
    ]

    for name, arguments in cases:
        number = syscall_numbers.number(name, "x86_64")
        assert number is not None
        answer, _ = run(program, number, arguments, AUDIT_ARCH["x86_64"])
        assert answer == said(rules, "x86_64", number, arguments), (name, arguments)


def test_a_program_that_the_kernel_would_not_take_is_not_made() -> None:
    """Too many instructions, or too long a list, is an error here and not in the run."""
    values = tuple(range(250))
    long_rules = [Rule("kill", errno.EPERM, "", "", (Condition(0, values),))] * 20

    with pytest.raises(ValueError, match="instructions"):
        bpf.assemble(long_rules, "x86_64")
    with pytest.raises(ValueError, match="jump"):
        bpf.assemble(
            [Rule("kill", errno.EPERM, "", "", (Condition(0, tuple(range(300))),))], "x86_64"
        )


def test_the_table_of_numbers_is_consistent() -> None:
    """No two calls share a number, and from 424 on both architectures agree."""
    for machine in MACHINES:
        numbers = [
            found
            for name in syscall_numbers.NUMBERS
            if (found := syscall_numbers.number(name, machine)) is not None
        ]
        assert len(numbers) == len(set(numbers))
    assert all(
        first == second
        for first, second in syscall_numbers.NUMBERS.values()
        if (first or 0) >= 424 or (second or 0) >= 424
    )
