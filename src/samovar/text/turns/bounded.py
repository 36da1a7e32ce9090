"""A memory that forgets what was longest unused when it is full."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
import threading
from typing import Generic, TypeVar

V = TypeVar("V")

ENTRY_BYTES = 250
"""What an entry takes beside its value."""


class Bounded(Generic[V]):
    """Values by key, within a number of bytes. Safe to use from several threads; values must not change."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._entries: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def get(self, key: Hashable, *, touch: bool = True) -> V | None:
        """`touch`: this is a use of it."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if touch:
                self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: V, num_bytes: int) -> None:
        """`num_bytes`: what the value takes. One that alone is too much is not kept, and pushes nothing out."""
        size = num_bytes + ENTRY_BYTES
        with self._lock:
            _, old = self._entries.pop(key, (None, 0))
            if size > self._max_bytes:
                self._num_bytes -= old
                return
            self._entries[key] = (value, size)
            self._num_bytes += size - old
            while self._num_bytes > self._max_bytes:
                _, (_, gone) = self._entries.popitem(last=False)
                self._num_bytes -= gone

    def check(self) -> None:
        assert self._num_bytes == sum(size for _, size in self._entries.values()) <= self._max_bytes


def text_bytes(text: str) -> int:
    """What a text takes in memory, at most."""
    return len(text) * (1 if text.isascii() else 4)
