"""Parses the text form of conditions.

The grammar::

    any   := all ("|" all)*
    all   := one ("&" one)*
    one   := "(" any ")"  |  name "(" [argument ("," argument)*] ")"

The parser does not recurse: nested parentheses only lengthen a list.
"""

from typing import Any, Final

from agentctl_supervisor.conditions.composition import (
    MAX_CONDITIONS,
    MAX_DEPTH,
    AllOf,
    AnyOf,
    Condition,
)
from agentctl_supervisor.conditions.condition_error import ConditionError, shown
from agentctl_supervisor.conditions.leaves import FunctionalTermination
from agentctl_supervisor.conditions.text_form import FORMS, Form, Kind, Parameter
from agentctl_supervisor.conditions.text_tokens import Token, tokens
from agentctl_supervisor.text.suggestions import closest

_CLASSES: Final = {form.condition.__name__: name for name, form in FORMS.items()}
_FUNCTIONAL: Final = {"functional", FunctionalTermination.__name__}
_WORDS: Final = {
    "or": "write | for or",
    "and": "write & for and",
    "not": "there is no 'not'",
}
_FLAGS: Final = {"true": True, "false": False, "True": True, "False": False}
_LISTED: Final = f"there are {', '.join(FORMS)}"


def from_text(source: str) -> Condition:
    """Return the condition in the text *source*.

    Raises:
        ConditionError: *source* is not a condition; the error has the place and an excerpt.
    """
    return _Parser(source).condition()


class _Group:
    """The content of a pair of parentheses: alternatives joined by |, their parts joined by &."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.alternatives: list[list[Condition]] = [[]]

    def joined(self) -> Condition:
        parts = [part[0] if len(part) == 1 else AllOf(part) for part in self.alternatives]
        return parts[0] if len(parts) == 1 else AnyOf(parts)


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = tokens(source)
        self._count = 0
        self._token = next(self._tokens)

    def _next(self) -> Token:
        """Return the current token and go on to the next one."""
        token = self._token
        if token.kind != "end":
            self._token = next(self._tokens)
        return token

    def condition(self) -> Condition:
        groups = [_Group(0)]
        while True:
            if self._takes("("):
                if len(groups) > MAX_DEPTH:
                    raise self._error(f"parentheses inside each other more than {MAX_DEPTH} times")
                groups.append(_Group(self._token.at - 1))
                continue
            condition = self._leaf()
            while True:
                groups[-1].alternatives[-1].append(condition)
                if self._takes("&"):
                    break
                if self._takes("|"):
                    groups[-1].alternatives.append([])
                    break
                if len(groups) > 1:
                    if not self._takes(")"):
                        raise self._unexpected(
                            "')', | or &", f"the '(' at {groups[-1].at + 1} is open"
                        )
                    condition = self._joined(groups.pop())
                    continue
                if self._token.kind != "end":
                    raise self._unexpected("| or &")
                return self._joined(groups[0])

    def _joined(self, group: _Group) -> Condition:
        try:
            return group.joined()
        except ConditionError as error:  # too many, or too deep
            raise self._error(str(error), error.hint, group.at) from None

    def _leaf(self) -> Condition:
        if self._token.kind != "name":
            raise self._unexpected("a condition", f"for example {FORMS['text'].example}")
        name = self._next()
        form = FORMS.get(name.text)
        if form is None:
            raise self._unknown(name)
        self._count += 1
        if self._count > MAX_CONDITIONS:
            raise self._error(f"more than {MAX_CONDITIONS} conditions", at=name.at)
        if not self._takes("("):
            raise self._unexpected(f"'(' behind {name.text}", f"for example {form.example}")
        fields = self._arguments(name, form)
        try:
            condition: Any = form.condition(**fields)
        except ConditionError as error:
            raise self._error(
                str(error), error.hint or f"for example {form.example}", name.at
            ) from None
        made: Condition = condition
        return made

    def _unknown(self, name: Token) -> ConditionError:
        hint = _LISTED
        if name.text in _FUNCTIONAL:
            hint = "functions are given in Python only"
        elif name.text.lower() in _WORDS:
            hint = _WORDS[name.text.lower()]
        elif close := closest(name.text.lower(), FORMS) or _CLASSES.get(
            closest(name.text, _CLASSES), ""
        ):
            hint = f"did you mean {FORMS[close].example}?"
        return self._error(f"no condition {shown(name.text)}", hint, name.at)

    def _arguments(self, name: Token, form: Form) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self._takes(")"):
            return self._complete(fields, name, form)
        while True:
            at = self._token.at
            parameter = self._parameter(name, form, first=not fields)
            if parameter.field in fields:
                raise self._error(f"{parameter.name} is given twice", "leave one out", at)
            fields[parameter.field] = self._value(parameter, form)
            if self._takes(")"):
                return self._complete(fields, name, form)
            if not self._takes(","):
                raise self._unexpected("',' or ')'", f"for example {form.example}")

    def _complete(self, fields: dict[str, Any], name: Token, form: Form) -> dict[str, Any]:
        for parameter in form.parameters:
            if parameter.required and parameter.field not in fields:
                raise self._error(
                    f"{name.text} without its {parameter.name}",
                    f"for example {form.example}",
                    name.at,
                )
        return fields

    def _parameter(self, name: Token, form: Form, *, first: bool) -> Parameter:
        """Return the parameter to which the next value belongs."""
        token = self._token
        example = f"for example {form.example}"
        if not form.parameters:
            raise self._error(f"{name.text} takes no argument", f"write {form.example}")
        if token.kind in {"string", "number"} or token.text in {"[", *_FLAGS}:
            if first and form.first:
                return form.parameters[0]
            raise self._error(f"{name.text} is not told what {shown(token.text)} is", example)
        if token.kind != "name":
            raise self._unexpected("an argument", example)
        self._next()
        if not self._takes("="):
            told = f"{shown(token.text)} has no quotes around it, and no = behind it"
            raise self._error(told, example, token.at)
        known = {parameter.name: parameter for parameter in form.parameters}
        if token.text not in known:
            close = closest(token.text, known)
            hint = f"did you mean {close}=?" if close else f"it takes {', '.join(known)}"
            raise self._error(f"{name.text} has no argument {shown(token.text)}", hint, token.at)
        return known[token.text]

    def _value(self, parameter: Parameter, form: Form) -> Any:
        token = self._token
        match parameter.kind, token.kind:
            case (Kind.TEXT, "string"):
                return self._next().text
            case (Kind.NAMES, "string"):
                return [self._next().text]
            case (Kind.NAMES, "mark") if token.text == "[":
                return self._names()
            case (Kind.COUNT, "number") if "." not in token.text:
                return int(self._next().text)
            case (Kind.FLAG, "name") if token.text in _FLAGS:
                return _FLAGS[self._next().text]
            case (Kind.DURATION, "number"):
                return float(self._next().text)
            case (Kind.DURATION, "string"):
                return self._duration(self._next(), parameter)
        raise self._error(
            f"{parameter.name} is {parameter.kind.value}", f"for example {form.example}"
        )

    def _duration(self, token: Token, parameter: Parameter) -> float:
        from agentctl_supervisor.errors import UsageError
        from agentctl_supervisor.text.durations import parse_duration

        try:
            return parse_duration(token.text, parameter.name)
        except UsageError as error:
            raise self._error(str(error), error.hint, token.at) from None

    def _names(self) -> list[str]:
        names: list[str] = []
        self._next()
        while True:
            if self._token.kind != "string":
                raise self._unexpected("a name in quotes")
            names.append(self._next().text)
            if self._takes("]"):
                return names
            if not self._takes(","):
                raise self._unexpected("',' or ']'")

    def _takes(self, mark: str) -> bool:
        """Consume the current token if it is *mark*; return True if it was."""
        if self._token.kind == "mark" and self._token.text == mark:
            self._next()
            return True
        return False

    def _unexpected(self, what: str, hint: str = "") -> ConditionError:
        token = self._token
        found = "the end" if token.kind == "end" else shown(self._source[token.at :], 20)
        if token.kind == "name" and token.text.lower() in _WORDS:
            hint = _WORDS[token.text.lower()]
        return self._error(f"expected {what}, found {found}", hint, token.at)

    def _error(self, text: str, hint: str = "", at: int | None = None) -> ConditionError:
        place = self._token.at if at is None else at
        return ConditionError(text, hint, source=self._source, at=place)
