"""What clients say is text, whatever it spells: only templates and models write control tokens.

In a rendered prompt a template's `<|im_end|>` and the same letters in a tool's result look alike, and the result could
open a turn of the system. So wherever a client's text spells a control token, a mark is put behind its first character
before it is rendered, and whoever encodes the prompt (`marked_encoder`) knows what is meant. Text that spells none,
which is nearly all, stays the very object that it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
import json
import re
from typing import Any

from samovar.text.formats.reasoning import REASONING_FORMATS
from samovar.text.formats.table import FORMATS
from samovar.text.marks import MARK
from samovar.text.messages import Message
from samovar.text.tokenizer import Tokenizer
from samovar.text.turns.splitting import any_of

MARKERS = frozenset(
    [
        *(marker for format in FORMATS.values() for marker in format.markers),
        *(marker for format in REASONING_FORMATS.values() for marker in format.markers),
    ]
)
"""What parsers of outputs look for: a client gets these as what they mean, so they may come back in an answer."""


@dataclass(frozen=True, slots=True)
class Framing:
    """Added tokens that are called ordinary, but that a template puts around what is said: DeepSeek's `<｜User｜>`."""

    messages: frozenset[str] = frozenset()
    results: frozenset[str] = frozenset()
    """Around calls and results. Elsewhere these are a text's own: agents without an API for tools write them."""


class Controls:
    """The control tokens of one tokenizer and template: those that are special, and those that frame messages.
    Immutable."""

    def __init__(self, tokenizer: Tokenizer, framing: Framing = Framing(), markers: Collection[str] = MARKERS) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens
        control = {id for id, token in added.items() if token.special or token.content in framing.messages}
        # A character cannot be told from itself.
        long = {id: token.content for id, token in added.items() if len(token.content) > 1}
        anywhere = {long[id] for id in control if id in long}
        self.marked_ids = frozenset(id for id, text in long.items() if text in anywhere | framing.results)
        """Tokens whose letters a client's text may have as text."""
        self._anywhere = _Spellings(anywhere)
        self._in_results = _Spellings(anywhere | framing.results) if framing.results else self._anywhere
        self._unsaid = frozenset(id for id in control if added[id].content not in markers)

    def message(self, message: Message) -> Message:
        """`message`, whose content is text, with marks. The role is not the client's text."""
        marked: Message = self.value(message)
        if marked is not message and "role" in message:
            marked = {**marked, "role": message["role"]}
        if message.get("role") != "tool":
            return marked
        content = self._in_results.marked(message["content"])
        return marked if content is marked["content"] else {**marked, "content": content}

    def value(self, value: Any) -> Any:
        """Of JSON: all its texts and keys with marks."""
        if isinstance(value, str):
            return self._anywhere.marked(value)
        if isinstance(value, Mapping):
            items = [(self.value(key), self._field(key, item)) for key, item in value.items()]
            old = value.items()
            same = all([new[0] is was[0] and new[1] is was[1] for new, was in zip(items, old, strict=True)])
            return value if same else dict(items)
        if isinstance(value, (list, tuple)):
            elements = [self.value(item) for item in value]
            return value if all([new is was for new, was in zip(elements, value, strict=True)]) else elements
        return value

    def spelt(self, ids: Sequence[int]) -> str:
        """The text of generated ids: control tokens as a template writes them, their letters, where a model spelt them
        out, with marks."""
        pieces = []
        for control, run in groupby(ids, self.marked_ids.__contains__):
            text = self._tokenizer.decode(run, skip_special_tokens=False, at_start=False)
            pieces.append(text if control else self._anywhere.marked(text))
        return "".join(pieces)

    def may_return(self, ids: Iterable[int]) -> bool:
        """Whether a client has seen all that these ids of an answer mean. What it has not seen it did not send back: a
        `<|im_start|>` that a model made up is hidden, and must not come to life as a turn of the history."""
        return self._unsaid.isdisjoint(ids)

    def _field(self, key: object, value: Any) -> Any:
        return self._arguments(value) if key == "arguments" and isinstance(value, str) else self.value(value)

    def _arguments(self, text: str) -> str:
        """JSON text, which a template may get as the object: escapes must not hide anything from the marks."""
        plain = _unescaped(text) if self._anywhere.may_hide_in(text) else None
        return self._anywhere.marked(text if plain is None or not self._anywhere.stand_in(plain) else plain)


class _Spellings:
    """A fixed set of texts to mark."""

    def __init__(self, words: Collection[str]) -> None:
        self._firsts = self._any = self._each = None
        if words:
            expression = any_of(words)
            self._any = re.compile(expression)
            # One may begin inside another.
            self._each = re.compile(f"(?={expression})(.)", re.DOTALL)
            self._firsts = re.compile("[" + re.escape("".join({word[0] for word in words})) + "]")
        # What looks like a word is one: `s` does not begin `sop`.
        signs = [word for word in words if not word[0].isalnum()]
        self._beginnings = frozenset(word[:length] for word in signs for length in range(1, len(word)))
        self._longest = max(map(len, words), default=0)
        escaped = any(character in '"\\\b\f\n\r\t' for word in words for character in word)
        self._escape = re.compile(r"\\" if escaped else r"\\[u/]")

    def marked(self, text: str) -> str:
        if self._any is None or self._each is None:
            return text
        if MARK in text:
            text = text.replace(MARK, "\ufffd")  # as the tokenizer reads it
        if self._any.search(text):
            text = self._each.sub(rf"\1{MARK}", text)
        return text + MARK if self._is_open(text) else text

    def stand_in(self, text: str) -> bool:
        return self._any is not None and self._any.search(text) is not None

    def may_hide_in(self, text: str) -> bool:
        """Whether there are escapes of JSON that could stand for a character of a word."""
        return "\\" in text and self._escape.search(text) is not None

    def _is_open(self, text: str) -> bool:
        """Whether the end of `text` begins a word, which the next text could complete."""
        assert self._firsts is not None
        tail = text[-self._longest :]
        return any(tail[found.start() :] in self._beginnings for found in self._firsts.finditer(tail))


def _unescaped(text: str) -> str | None:
    """The same object with nothing escaped that need not be; None when it is none."""
    try:
        value = json.loads(text)
        return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        return None
