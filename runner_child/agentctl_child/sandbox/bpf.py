"""Programs for the kernel's seccomp: rules about system calls, assembled as classic BPF.

A program sees a call's number, its architecture and the six arguments as numbers (struct
seccomp_data of linux/seccomp.h). It never sees what a pointer points to. Numbers are looked up in
a balanced tree, so a call costs a few comparisons, however many rules there are.

From Linux 5.11 on, the kernel works out at installation which numbers are always allowed, and runs
no filter for them. For that, a program must load only number and architecture for such numbers, as
these programs do.
"""

import os
import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from agentctl_child.sandbox import syscall_numbers

_MACHINE: Final = os.uname().machine
_AUDIT_ARCH: Final = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_X32_BIT: Final = 0x4000_0000
#: The number that a tracer sets to have no call; the kernel then executes nothing.
_NO_CALL: Final = 0xFFFF_FFFF

_LOAD: Final = 0x20
_AND: Final = 0x54
_JUMP: Final = 0x05
_JUMP_IF_EQUAL: Final = 0x15
_JUMP_IF_GREATER_OR_EQUAL: Final = 0x35
_RETURN: Final = 0x06
#: Conditional jumps skip at most this many instructions: their offsets are bytes.
_LONGEST_JUMP: Final = 255
#: BPF_MAXINSNS of linux/bpf_common.h.
LONGEST_PROGRAM: Final = 4096

_ALLOW: Final = 0x7FFF_0000
_ERRNO: Final = 0x0005_0000
_KILL_PROCESS: Final = 0x8000_0000
_ENOSYS: Final = 38
_OFFSET_OF_NUMBER: Final = 0
_OFFSET_OF_ARCH: Final = 4
_OFFSET_OF_ARGUMENTS: Final = 16
_WORD: Final = 0xFFFF_FFFF


class Condition(NamedTuple):
    """Holds if the low 32 bits of ``argument`` (0 to 5), under ``mask``, are one of ``values``.

    ``negated``: holds if they are none of them. Use it only for arguments whose upper half the
    kernel ignores, too (int and unsigned int; both architectures are little-endian).
    """

    argument: int
    values: tuple[int, ...]
    mask: int = _WORD
    negated: bool = False


class Rule(NamedTuple):
    """A system call that fails with ``answer``, an errno, instead of being executed.

    ``only_if``: all of these conditions must hold. ``when`` says the same for people. If a call
    has several rules, the first one that matches answers.
    """

    call: str
    answer: int
    reason: str
    when: str = ""
    only_if: tuple[Condition, ...] = ()


_Instruction = tuple[int, int, int, int]
_ALLOWED: Final[_Instruction] = (_RETURN, 0, 0, _ALLOW)


def is_supported() -> bool:
    """Return True if there is a table for this machine."""
    return _MACHINE in _AUDIT_ARCH


def assemble(rules: Iterable[Rule], machine: str = _MACHINE) -> bytes:
    """Return the program that answers by ``rules`` and allows everything else.

    A call of another architecture kills the process, because its numbers mean other calls. Calls
    of x32 do not exist (ENOSYS). Rules for calls that ``machine`` does not have are left out.
    Raises ValueError if the program would be too long for the kernel.
    """
    by_number: dict[int, list[Rule]] = {}
    for rule in rules:
        number = syscall_numbers.number(rule.call, machine)
        if number is not None:
            by_number.setdefault(number, []).append(rule)
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _OFFSET_OF_ARCH),
        (_JUMP_IF_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _OFFSET_OF_NUMBER),
    ]
    if machine == "x86_64":
        program += [
            (_JUMP_IF_GREATER_OR_EQUAL, 0, 3, _X32_BIT),
            (_JUMP_IF_EQUAL, 0, 1, _NO_CALL),
            _ALLOWED,
            (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        ]
    program += _tree(sorted(by_number.items()))
    if len(program) > LONGEST_PROGRAM:
        raise ValueError(f"{len(program)} instructions are more than the kernel takes")
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _tree(numbers: Sequence[tuple[int, Sequence[Rule]]]) -> list[_Instruction]:
    """Find the number that is in the accumulator; every path ends in a return."""
    if not numbers:
        return [_ALLOWED]
    if len(numbers) == 1:
        number, rules = numbers[0]
        body = [instruction for rule in rules for instruction in _rule(rule)]
        return [*_unless(_JUMP_IF_EQUAL, number, len(body)), *body, _ALLOWED]
    middle = len(numbers) // 2
    lower, upper = _tree(numbers[:middle]), _tree(numbers[middle:])
    first_of_upper = numbers[middle][0]
    if len(lower) <= _LONGEST_JUMP:
        return [
            (_JUMP_IF_GREATER_OR_EQUAL, len(lower), 0, first_of_upper),
            *lower,
            *upper,
        ]
    return [
        (_JUMP_IF_GREATER_OR_EQUAL, 0, 1, first_of_upper),
        (_JUMP, 0, 0, len(lower)),
        *lower,
        *upper,
    ]


def _unless(jump: int, value: int, over: int) -> list[_Instruction]:
    """Skip ``over`` instructions unless the comparison holds."""
    if over <= _LONGEST_JUMP:
        return [(jump, 0, over, value)]
    return [(jump, 1, 0, value), (_JUMP, 0, 0, over)]


def _rule(rule: Rule) -> list[_Instruction]:
    """Answer if all conditions hold, else continue behind the rule."""
    code: list[_Instruction] = [(_RETURN, 0, 0, _ERRNO | rule.answer)]
    for condition in reversed(rule.only_if):
        code = _condition(condition, code)
    return code


def _condition(condition: Condition, then: list[_Instruction]) -> list[_Instruction]:
    """Continue with ``then``, the rest of the rule, if ``condition`` holds; else skip it."""
    load: list[_Instruction] = [(_LOAD, 0, 0, _OFFSET_OF_ARGUMENTS + 8 * condition.argument)]
    if condition.mask != _WORD:
        load.append((_AND, 0, 0, condition.mask))
    values = [value & _WORD for value in condition.values]
    # A match skips the rest of the rule, or it skips the unconditional jump that does so.
    skip: list[_Instruction] = [] if condition.negated else [(_JUMP, 0, 0, len(then))]
    beyond = len(then) if condition.negated else len(skip)
    comparisons = [
        (_JUMP_IF_EQUAL, len(values) - 1 - place + beyond, 0, value)
        for place, value in enumerate(values)
    ]
    if len(values) + beyond > _LONGEST_JUMP:
        raise ValueError(f"a condition with {len(values)} values needs too long a jump")
    return [*load, *comparisons, *skip, *then]
