"""Bodies that begin as an earlier one did are read from where that ends: an agent sends its whole conversation with
every turn, and most of it was read before.

Only exact bytes count, and only what stands behind them is read: JSON has no way to change what a beginning means.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
import re
import secrets
import threading
from typing import Any

import msgspec

from samovar.serve.json_input import parse_object

MAX_BYTES = 64 << 20
MAX_BEGINNINGS = 256
"""Each is compared with every body of its tenant."""
MIN_BYTES = 16 << 10
"""Shorter bodies are read in a few microseconds."""
_LEFT_OUT = 3
"""Messages at the end that are read again: clients move marks among the last ones."""
_OPENING = re.compile(rb'"(messages|input)"\s*:\s*\[')
_BETWEEN = b" \t\r\n,"


class _Elements(msgspec.Struct):
    messages: list[msgspec.Raw] = []
    input: list[msgspec.Raw] = []


@dataclass(frozen=True, slots=True)
class _Beginning:
    data: bytes
    """From the body's first byte to the end of an element of its list."""
    key: str
    """What the list is called."""
    opened: int
    """Where the list's first element begins."""
    elements: list[Any]
    """Nobody changes them."""


class BodyMemory:
    """Bounded in bytes; beginnings are kept apart by tenant. Safe to use from several threads."""

    def __init__(self, max_bytes: int = MAX_BYTES, min_bytes: int = MIN_BYTES) -> None:
        self._max_bytes = max_bytes
        self._min_bytes = min_bytes
        self._num_bytes = 0
        self._known: OrderedDict[tuple[str, bytes], _Beginning] = OrderedDict()
        self._lock = threading.Lock()
        self._mark = secrets.token_hex(16)

    def parse(self, raw: bytes, tenant: str) -> dict[str, Any]:
        """As `parse_object`. Messages may be the very objects of an earlier body: they must not be changed."""
        if len(raw) < self._min_bytes:
            return parse_object(raw)
        known = self._longest(raw, tenant)
        value = None if known is None else self._go_on(raw, known)
        if known is None or value is None:
            value, known = parse_object(raw), None
        self._remember(raw, tenant, value, known)
        return value

    def check(self) -> None:
        assert self._num_bytes == sum(len(beginning.data) for beginning in self._known.values()) <= self._max_bytes

    def _longest(self, raw: bytes, tenant: str) -> _Beginning | None:
        with self._lock:
            known = [beginning for (whose, _), beginning in self._known.items() if whose == tenant]
        matching = [beginning for beginning in known if raw.startswith(beginning.data)]
        return max(matching, key=lambda beginning: len(beginning.data), default=None)

    def _go_on(self, raw: bytes, known: _Beginning) -> dict[str, Any] | None:
        """None when what follows is at fault, or names the list again: then the body is read as a whole."""
        try:
            value = parse_object(self._shortened(raw, known.opened, len(known.data)))
        except Exception:  # whatever is wrong is said of the whole body, with its places
            return None
        elements = value.get(known.key)
        if not isinstance(elements, list) or not elements or elements[0] != self._mark:
            return None
        value[known.key] = [*known.elements, *elements[1:]]
        return value

    def _shortened(self, raw: bytes, opened: int, end: int) -> bytes:
        """With a mark in place of all elements before `end`."""
        return b'%b"%b"%b' % (raw[:opened], self._mark.encode(), raw[end:])

    def _remember(self, raw: bytes, tenant: str, value: dict[str, Any], known: _Beginning | None) -> None:
        new = self._beginning(raw, value, known)
        if new is None or len(new.data) > self._max_bytes:
            return
        with self._lock:
            for old in (known, new):
                gone = None if old is None else self._known.pop((tenant, old.data), None)
                self._num_bytes -= 0 if gone is None else len(gone.data)
            self._known[tenant, new.data] = new
            self._num_bytes += len(new.data)
            while self._num_bytes > self._max_bytes or len(self._known) > MAX_BEGINNINGS:
                _, oldest = self._known.popitem(last=False)
                self._num_bytes -= len(oldest.data)

    def _beginning(self, raw: bytes, value: dict[str, Any], known: _Beginning | None) -> _Beginning | None:
        """All but the last few elements, if it is certain where they stand."""
        if known is not None:
            key, opened, begin, elements = known.key, known.opened, len(known.data), known.elements
        else:
            found = _OPENING.search(raw)
            if found is None:
                return None
            key, opened = found[1].decode(), found.end()
            begin, elements = opened, []
        listed = value.get(key)
        if not isinstance(listed, list) or len(listed) - _LEFT_OUT <= len(elements):
            return known
        if known is None and not self._opens(raw, key, opened, listed):
            return None
        ends = self._ends(raw, key, opened, begin)
        count = len(listed) - _LEFT_OUT - len(elements)
        if ends is None or count > len(ends):
            return None
        return _Beginning(raw[: ends[count - 1]], key, opened, listed[: len(elements) + count])

    def _opens(self, raw: bytes, key: str, opened: int, listed: list[Any]) -> bool:
        """Whether the list begins there: another of that name, deeper inside or in a text, is not where a mark put
        there turns up."""
        try:
            marked = msgspec.json.decode(b'%b"%b",%b' % (raw[:opened], self._mark.encode(), raw[opened:]))
        except msgspec.MsgspecError:
            return False
        return isinstance(marked, dict) and marked.get(key) == [self._mark, *listed]

    def _ends(self, raw: bytes, key: str, opened: int, begin: int) -> list[int] | None:
        """Where the elements end that stand behind `begin`."""
        data = raw if begin == opened else self._shortened(raw, opened, begin)
        try:
            elements: list[msgspec.Raw] = getattr(msgspec.json.decode(data, type=_Elements), key)
        except msgspec.MsgspecError:
            return None
        at, ends = begin, []
        for element in elements if begin == opened else elements[1:]:
            written = bytes(element)
            place = raw.find(written, at)
            if place < 0 or raw[at:place].strip(_BETWEEN):
                return None
            at = place + len(written)
            ends.append(at)
        return ends
