"""Digests of conversations: the place by which something is remembered, and an answer by what it says.

A client gets an answer as text, reasoning and calls, and sends these back. Blanks around a text, ids of calls, order
and spacing of their arguments do not count when an answer is looked for: clients change them, and mean the same. The
messages before it must be the very same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
import json
from typing import Any

import msgspec

from samovar.base.keys import KEY_BYTES
from samovar.text.answer import Answer
from samovar.text.messages import Message, flatten
from samovar.text.turns.bounded import Bounded, text_bytes
from samovar.text.turns.volatile import VolatileLines

SEEN_BYTES = 64 << 20
ITEM_BYTES = 100
"""What a field or an element takes beside its text."""
MESSAGE_BYTES = 500
"""What a message takes beside its text."""


@dataclass(frozen=True, slots=True)
class History:
    """A conversation's messages, ready to be rendered."""

    flat: Sequence[Message]
    """Contents are text, volatile lines are gone."""
    marked: Sequence[Message]
    """The same as templates get them: see `controls`."""
    digests: Sequence[bytes]
    """Of the conversation before each message, and of all of it."""


@dataclass(frozen=True, slots=True)
class _Seen:
    messages: list[Message]
    """As they came."""
    history: History
    num_bytes: int


class Histories:
    """Makes histories, and remembers the last of each conversation: what begins with one that was seen is compared with
    it, which takes a tenth of the time. Safe to use from several threads."""

    def __init__(
        self, volatile: VolatileLines, mark: Callable[[Message], Message], max_bytes: int = SEEN_BYTES
    ) -> None:
        """`mark`: what is done to a message before it is rendered."""
        self._volatile = volatile
        self._mark = mark
        self._seen: Bounded[_Seen] = Bounded(max_bytes)

    def of(self, messages: Sequence[Message], root: bytes, *, remember: bool = True) -> History:
        """`remember`: False leaves the memory as it is. Raises InvalidField for content that is no text."""
        messages = list(messages)
        seen = self._find(messages, root, touch=remember)
        begin = len(seen.messages) if seen else 0
        new = self._volatile.strip(flatten(messages, begin))
        flat = [*seen.history.flat, *new] if seen else new or flatten(messages)
        digests = [*seen.history.digests] if seen else [beginning(root)]
        marked = [*seen.history.marked] if seen else []
        num_bytes = seen.num_bytes if seen else 0
        for message in flat[len(marked) :]:
            digests.append(after(digests[-1], message))
            marked.append(self._mark(message))
            num_bytes += text_bytes(message["content"]) + MESSAGE_BYTES
            num_bytes += _held_bytes(marked[-1]) if marked[-1] is not message else 0
        num_bytes += sum(_held_bytes(message) for message in messages[begin:])
        history = History(flat, marked, digests)
        if remember and begin < len(messages) and all(_only_texts(message) for message in messages[begin:]):
            messages[:begin] = seen.messages if seen else ()  # one copy of them is enough
            self._seen.put(_key(messages, len(messages) - 1, root), _Seen(messages, history, num_bytes), num_bytes)
        return history

    def check(self) -> None:
        self._seen.check()

    def _find(self, messages: list[Message], root: bytes, *, touch: bool) -> _Seen | None:
        """The longest known conversation that these messages are or go on, mostly with an answer."""
        for last in range(len(messages) - 1, -1, -1):
            if last == len(messages) - 1 or messages[last + 1].get("role") == "assistant":
                seen = self._seen.get(_key(messages, last, root), touch=touch)
                if seen is not None and seen.messages == messages[: last + 1]:
                    return seen
        return None


def _held_bytes(value: Any) -> int:
    """What a message holds, whatever its fields are: those that nobody reads are kept as well."""
    if isinstance(value, Mapping):
        return sum(text_bytes(key) + _held_bytes(item) + ITEM_BYTES for key, item in value.items())
    if isinstance(value, list):
        return sum(_held_bytes(item) + ITEM_BYTES for item in value)
    return text_bytes(value) if isinstance(value, str) else 0


def _only_texts(value: Any) -> bool:
    """Whether what is equal to it is the same, which does not hold for True, 1 and 1.0."""
    if isinstance(value, Mapping):
        return all([_only_texts(item) for item in value.values()])
    if isinstance(value, list):
        return all([_only_texts(item) for item in value])
    return value is None or isinstance(value, str)


def _key(messages: Sequence[Message], last: int, root: bytes) -> Hashable:
    """Where to look for a conversation that ends with message `last`; what is found there must be compared."""
    content = messages[last].get("content")
    return root, last, content if isinstance(content, str) else None


def beginning(root: bytes) -> bytes:
    """The digest of a conversation without messages, in the cache domain of `root`."""
    return sha256(b"conversation" + root).digest()[:KEY_BYTES]


def after(before: bytes, message: Message) -> bytes:
    """The digest of a conversation with one more message, of which everything counts."""
    try:
        # Most messages have only texts, as they were sent.
        sizes = " ".join([f"{len(key)} {key} {len(value)}" for key, value in message.items()])
        data = "".join([sizes, "\n", *message.values()]).encode("utf-8", "surrogatepass")
    except TypeError:
        data = b"\n" + _written(message)
    return sha256(before + data).digest()[:KEY_BYTES]


def answer_key(before: bytes, answer: Answer) -> bytes:
    """Of an answer as a client gets it, to a conversation of digest `before`."""
    calls = [{"function": {"name": call.name, "arguments": call.arguments}} for call in answer.calls]
    return _digest(before, answer.text.strip(), answer.reasoning.strip(), _calls(calls))


def returned_key(before: bytes, message: Message) -> bytes:
    """`answer_key` of an answer that comes back as a message, whose content is text."""
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    calls = _calls(message.get("tool_calls") or ())
    return _digest(before, message["content"].strip(), str(reasoning).strip(), calls)


def _written(message: Message) -> bytes:
    try:
        return msgspec.json.encode(message)
    except (TypeError, ValueError, OverflowError):
        return json.dumps(message, default=repr).encode()


def _digest(before: bytes, text: str, reasoning: str, calls: bytes) -> bytes:
    sizes = f"{len(text)} {len(reasoning)} "
    data = (sizes + text + reasoning).encode("utf-8", "surrogatepass")
    return sha256(before + b"answer" + data + calls).digest()[:KEY_BYTES]


def _calls(calls: Sequence[Any]) -> bytes:
    return b"".join([_call(call) for call in calls])


def _call(call: Any) -> bytes:
    """Name and arguments, whatever their order and spacing; raw input of a custom tool as that, in either form."""
    kind = call.get("type", "function") if isinstance(call, Mapping) else None
    inner = call.get(kind) if isinstance(call, Mapping) else None
    if not isinstance(inner, Mapping):
        return repr(call).encode("utf-8", "surrogatepass")
    written = inner.get("input") if kind == "custom" else inner.get("arguments")
    try:
        arguments = _parsed(written) if isinstance(written, str) else written
        if isinstance(arguments, Mapping) and set(arguments) == {"input"} and isinstance(arguments["input"], str):
            arguments = arguments["input"]
        form = json.dumps([inner.get("name"), _plain(arguments)], sort_keys=True, default=repr)
    except RecursionError:
        form = f"{inner.get('name')} {written}"
    return f"{len(form)} {form}".encode("utf-8", "surrogatepass")


def _parsed(text: str) -> Any:
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, dict) else text


def _plain(value: Any) -> Any:
    """Clients that parse JSON and write it anew turn 1.0 into 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
