"""What a model call used that was cut short before the model said so.

The prompt is counted from the request, the completion from the text that was streamed.
That is an estimate and is called one, with the name of the estimator; but it is never
the 0 that the call's owner would be billed for all the same.
"""

import contextlib
from typing import Any, Final, Protocol

import msgspec

from agentctl_protocol.errors import PeerProtocolError
from agentctl_protocol.records import Estimate
from agentctl_protocol.values import open_value
from agentctl_supervisor.report.call_history import CutCall

MAX_COUNT: Final = (1 << 53) - 1
_MAX_NAME: Final = 64
_MAX_CONTAINERS: Final = 1 << 14
_MAX_TEXTS: Final = 1 << 14
"""Texts and numbers in a request that are counted one by one; of more, bytes are."""


class Estimator(Protocol):
    """Counts tokens.  ``name`` goes into the record of each estimate."""

    name: str

    def count(self, text: str) -> int:
        """How many tokens *text* is; called in the supervisor, so fast and without waiting."""
        ...


class FourBytes:
    """Four bytes of UTF-8 a token: the rule of thumb for English text, within some 30 %."""

    name = "utf8-bytes/4"

    def count(self, text: str) -> int:
        """See `Estimator`."""
        return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


DEFAULT: Final[Estimator] = FourBytes()


def estimate(cut: CutCall, estimator: Estimator = DEFAULT) -> Estimate:
    """The record of what *cut* used.  An *estimator* that fails is replaced by the default."""
    with contextlib.suppress(Exception):
        return _estimate(cut, estimator)
    return _estimate(cut, DEFAULT)


def _estimate(cut: CutCall, estimator: Estimator) -> Estimate:
    completion = estimator.count(cut.text) if cut.text else 0
    if cut.text and cut.chars > len(cut.text):
        completion = round(completion * cut.chars / len(cut.text))
    # A request that is kept no longer: the default's rule of thumb.
    prompt = -(-cut.request_bytes // 4)
    texts = None if cut.request is None else _texts(cut.request)
    if texts is not None:
        prompt = sum(estimator.count(text) for text in texts)
    for number in (prompt, completion):
        if not 0 <= number <= MAX_COUNT:
            raise ValueError("not a number of tokens")
    name = str(estimator.name)[:_MAX_NAME]
    return Estimate(cut.call, cut.model, int(prompt), int(completion), name)


def _texts(request: msgspec.Raw) -> list[str] | None:
    """What stands in a request, as the model reads it: without the JSON around it.

    None: it cannot be read, or is of so many parts that it would take long.
    """
    try:
        pending: list[Any] = [open_value(request, "request", _MAX_CONTAINERS)]
    except PeerProtocolError:
        return None
    texts: list[str] = []
    while pending:
        if len(texts) + len(pending) > _MAX_TEXTS:
            return None
        match pending.pop():
            case str(text):
                texts.append(text)
            case int() | float() as number:  # tokens, perhaps
                texts.append(str(number))
            case dict() as table:
                pending += table.values()
            case list() as items:
                pending += items
    return texts
