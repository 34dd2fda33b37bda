"""Estimates the tokens of a model call that was cut short before the model reported them.

The prompt is counted from the request, the completion from the streamed text.  The record says
that this is an estimate, and names the estimator.  An estimate is better than 0: the provider
bills the call anyway.
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
"""Most texts and numbers in a request that are counted one by one; beyond that, its bytes are."""


class Estimator(Protocol):
    """A counter of tokens.  ``name`` goes into the record of each estimate."""

    name: str

    def count(self, text: str) -> int:
        """Return the number of tokens in *text*; must be fast, as it runs in the supervisor."""
        ...


class FourBytes:
    """The rule of thumb of four bytes of UTF-8 per token: within about 30 % for English text."""

    name = "utf8-bytes/4"

    def count(self, text: str) -> int:
        """See `Estimator`."""
        return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


DEFAULT: Final[Estimator] = FourBytes()


def estimate(cut: CutCall, estimator: Estimator = DEFAULT) -> Estimate:
    """Return the estimate for *cut*.  If *estimator* fails, the default one is used."""
    with contextlib.suppress(Exception):
        return _estimate(cut, estimator)
    return _estimate(cut, DEFAULT)


def _estimate(cut: CutCall, estimator: Estimator) -> Estimate:
    completion = estimator.count(cut.text) if cut.text else 0
    if cut.text and cut.chars > len(cut.text):
        completion = round(completion * cut.chars / len(cut.text))
    # The rule of thumb of `FourBytes`, for a request that is no longer kept.
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
    """Return the texts in a request, as the model reads them: without the JSON around them.

    None: the request cannot be decoded, or has too many parts to count them quickly.
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
            case int() | float() as number:  # may be token numbers
                texts.append(str(number))
            case dict() as table:
                pending += table.values()
            case list() as items:
                pending += items
    return texts
