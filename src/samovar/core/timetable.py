"""When conversations are to be brought up: one time per stream, a later word replaces an earlier one.

Invariant: of a stream's entries in the heap one is valid at most, that with the number of its `Due`; others are skipped
when they surface.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

MOST_PER_TENANT = 1000
LOOKS = 8
"""How often a stream that may come at any moment of a time is looked at, in equal parts of it."""


@dataclass(frozen=True, slots=True)
class Due:
    tenant: str
    number: int
    until_s: float = 0.0
    """It may come at any moment until then; 0.0: only when it is due."""
    every_s: float = 0.0


class Timetable:
    __slots__ = ("_due", "_heap", "_num_made", "_per_tenant")

    def __init__(self) -> None:
        self._due: dict[str, Due] = {}
        self._heap: list[tuple[float, int, str]] = []
        """(when, number, stream)."""
        self._num_made = 0
        self._per_tenant: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._due)

    def has_room(self, tenant: str, stream: str = "") -> bool:
        """For a time of `stream`, which may have one already."""
        return stream in self._due or self._per_tenant[tenant] < MOST_PER_TENANT

    def expect(self, stream: str, tenant: str, at_s: float) -> None:
        """Its next turn is expected soon after `at_s`."""
        self._put(stream, tenant, at_s, 0.0, 0.0)

    def expect_within(self, stream: str, tenant: str, now: float, seconds: float) -> None:
        """Its next turn may come at any moment from now on."""
        every_s = seconds / LOOKS
        self._put(stream, tenant, now + every_s, now + seconds, every_s)

    def cancel(self, stream: str) -> None:
        due = self._due.pop(stream, None)
        if due is not None:
            self._per_tenant[due.tenant] -= 1
            if not self._per_tenant[due.tenant]:
                del self._per_tenant[due.tenant]

    def _put(self, stream: str, tenant: str, at_s: float, until_s: float, every_s: float) -> None:
        self.cancel(stream)
        self._num_made += 1
        self._due[stream] = Due(tenant, self._num_made, until_s, every_s)
        self._per_tenant[tenant] += 1
        heappush(self._heap, (at_s, self._num_made, stream))
        if len(self._heap) > 2 * len(self._due) + 64:
            self._heap = [entry for entry in self._heap if self._is_valid(entry)]
            heapify(self._heap)

    def _is_valid(self, entry: tuple[float, int, str]) -> bool:
        due = self._due.get(entry[2])
        return due is not None and due.number == entry[1]

    @property
    def next_s(self) -> float | None:
        while self._heap and not self._is_valid(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now: float) -> tuple[str, Due] | None:
        """The next stream whose time has come; it is not in the table any more."""
        at_s = self.next_s
        if at_s is None or at_s > now:
            return None
        _, _, stream = heappop(self._heap)
        due = self._due[stream]
        self.cancel(stream)
        return stream, due

    def look_again(self, stream: str, due: Due, now: float) -> None:
        """Nothing was to be brought up, or nothing could be: the next look at one that may come at any moment."""
        if now + due.every_s < due.until_s:
            self._put(stream, due.tenant, now + due.every_s, due.until_s, due.every_s)

    def check(self) -> None:
        valid = [stream for at_s, number, stream in self._heap if self._is_valid((at_s, number, stream))]
        assert sorted(valid) == sorted(self._due), "a time that nobody will look at"
        assert self._per_tenant == Counter(due.tenant for due in self._due.values())
        assert len(self._heap) <= 2 * len(self._due) + 64 + 1
