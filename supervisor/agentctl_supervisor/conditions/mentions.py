"""Looks for given texts in the messages of agents, whole or streamed, with bounded memory."""

from collections.abc import Iterable
from typing import Final

from agentctl_protocol.messages import CallFinished, Message, Text
from agentctl_protocol.records import VerdictRecord
from agentctl_supervisor.conditions.condition import MAX_NAME
from agentctl_supervisor.conditions.leaf_match import Hits, plain
from agentctl_supervisor.conditions.leaves import TextMentionTermination

MAX_STREAMS: Final = 256
"""Streamed messages that are tracked at a time.  One more makes the oldest one forgotten."""
MAX_OPEN_CALLS: Final = 2000

_LONGEST_CALL: Final = 128

_Key = tuple[str, str]
"""The source of a stream and the id of its model call; the id is empty if the agent gave none."""
_Wanted = list[tuple[str, int]]
"""The texts that are still looked for, each with the number of the leaf that wants it."""


class _Stream:
    """The end of a streamed message: long enough to find a text that is split between pieces."""

    __slots__ = ("keep", "tail", "wanted")

    def __init__(self, wanted: _Wanted) -> None:
        self.tail = ""
        self.wanted = wanted
        self.keep = max((len(text) - 1 for text, _ in wanted), default=0)


class Mentions:
    """The watcher for all `TextMentionTermination` of a tree.

    The pieces of one source form one message.  If pieces name their model call, the pieces
    of one call form one message.  A streamed message ends at the next whole message of the
    same source.  It also ends when a model call begins while no other is open: the next
    piece is then the start of an answer.
    """

    def __init__(self, mentions: Iterable[tuple[int, TextMentionTermination]], hits: Hits) -> None:
        self._hits = hits
        self._everywhere: _Wanted = []
        self._by_source: dict[str, _Wanted] = {}
        every = list(mentions)
        named = dict.fromkeys(source for _, leaf in every for source in leaf.sources or ())
        for source in named:
            self._by_source[source] = [
                (leaf.text, number)
                for number, leaf in every
                if leaf.sources is None or source in leaf.sources
            ]
        self._everywhere = [(leaf.text, number) for number, leaf in every if leaf.sources is None]
        self._streams: dict[_Key, _Stream] = {}
        self._calls_told = False
        self._open_calls: dict[str, None] = {}

    def __repr__(self) -> str:
        return f"<Mentions in {len(self._streams)} streams>"

    def piece(self, event: Text) -> None:
        """Look for the texts in a streamed piece of a message."""
        stream = self._streams.get((event.source, event.call))
        if stream is None:
            stream = self._stream_of(event.source, event.call)
        if not stream.wanted:
            return
        window = stream.tail + event.text
        for text, _ in stream.wanted:
            if text in window:
                self._found(stream.wanted, window)
                break
        keep = stream.keep
        stream.tail = window[-keep:] if keep else ""

    def message(self, event: Message) -> None:
        """Look for the texts in a whole message; it also ends the streams of its source."""
        if self._streams:
            self._end(event.source)
        wanted = self._by_source.get(event.source, self._everywhere)
        for text, _ in wanted:
            if text in event.text:
                self._found(wanted, event.text)
                return

    def verdict(self, record: VerdictRecord) -> None:
        """Note that a model call began, if the gate granted one."""
        if record.kind == "model" and record.verdict == "granted":
            if not self._open_calls:
                self._streams.clear()
            self._open_calls[record.call] = None
            if len(self._open_calls) > MAX_OPEN_CALLS:
                del self._open_calls[next(iter(self._open_calls))]

    def finished(self, event: CallFinished) -> None:
        """Note that a call has ended."""
        self._open_calls.pop(event.call, None)

    def _end(self, source: str) -> None:
        name, _ = key = _key(source, "")
        self._streams.pop(key, None)
        if self._calls_told:
            for other in [other for other in self._streams if other[0] == name]:
                del self._streams[other]

    def _stream_of(self, source: str, call: str) -> _Stream:
        key = _key(source, call)
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= MAX_STREAMS:
                del self._streams[next(iter(self._streams))]
            stream = _Stream(self._by_source.get(source, self._everywhere))
            self._streams[key] = stream
            self._calls_told = self._calls_told or bool(call)
        return stream

    def _found(self, wanted: _Wanted, where: str) -> None:
        found = [(text, number) for text, number in wanted if text in where]
        for text, number in found:
            self._hits.append((number, f"Text '{plain(text)}' mentioned"))
        for some in (self._everywhere, *self._by_source.values()):
            some[:] = [one for one in some if one not in found]


def _key(source: str, call: str) -> _Key:
    """Return the key of a stream.

    Both parts are cut one character above the limits for names in conditions and for call ids.
    So a part that is too long never equals a valid one.
    """
    return source[: MAX_NAME + 1], call[: _LONGEST_CALL + 1]
