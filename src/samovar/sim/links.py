"""Links on the virtual clock: transfers under way in one direction share its bandwidth equally, each up to a cap, once
their latency is over. Times of ends are exact: they are worked out again at each arrival and departure, never sampled.

Since all flows of a channel have the same rate, one number says how far all of them are: the bytes that a flow would
have if it had been there since the channel was last idle (`_served`). A flow ends when that number reaches what it was
at the flow's arrival plus the flow's size. `next_end_s` keeps its value, to the last bit, while no flow is added or
taken out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf, isclose

_ROUNDING = 1e-9


@dataclass(slots=True, eq=False)
class Flow:
    """One transfer in a channel, from `begin` until it ends or is taken out."""

    number: int
    num_bytes: float
    on_end: Callable[[float], None]
    begins_s: float
    """When its latency is over."""
    ends_at: float = inf
    """In bytes served; inf while it waits for `begins_s`."""
    gone: bool = False


class Channel:
    """One direction of a link. Calls come in the order of time, and nobody moves time past `next_end_s` without
    `pop`."""

    __slots__ = (
        "_active", "_ended_bytes", "_heap", "_next", "_now_s", "_number", "_served", "_waiting", "busy_s",
        "bytes_per_s", "flow_bytes_per_s", "latency_s", "name",
    )  # fmt: skip

    def __init__(self, name: str, bytes_per_s: float, latency_s: float = 0.0, flow_bytes_per_s: float = inf) -> None:
        self.name = name
        self.bytes_per_s = bytes_per_s
        self.latency_s = latency_s
        self.flow_bytes_per_s = flow_bytes_per_s
        self.busy_s = 0.0
        """Seconds in which bytes moved."""
        self._now_s = 0.0
        self._served = 0.0
        self._active: dict[int, Flow] = {}
        self._heap: list[tuple[float, int]] = []
        """(ends_at, number) of active flows, and of some that are gone."""
        self._waiting: list[tuple[float, int, Flow]] = []
        """By `begins_s`; some may be gone."""
        self._number = 0
        self._ended_bytes = 0.0
        """Of flows that ended, and what those that were taken out had moved."""
        self._next: tuple[float, int] | None = None
        """(time, number) of the next end, when it is known."""

    def begin(self, num_bytes: float, now: float, on_end: Callable[[float], None], *, latency: bool = True) -> Flow:
        """`latency` False: it goes on with what was begun before."""
        assert num_bytes >= 0.0
        self._move_on(now)
        self._number += 1
        flow = Flow(self._number, num_bytes, on_end, now + (self.latency_s if latency else 0.0))
        heappush(self._waiting, (flow.begins_s, flow.number, flow))
        self._move_on(now)
        self._next = None
        return flow

    def take_out(self, flow: Flow, now: float) -> float:
        """Ends a flow early. Returns the bytes that it had left; its `on_end` is not called."""
        assert not flow.gone, "the flow has ended"
        self._move_on(now)
        left = self._left_bytes(flow)
        flow.gone = True
        self._next = None
        if flow.number in self._active:
            self._remove(flow, flow.num_bytes - left)
        return left

    def left_bytes(self, flow: Flow, now: float) -> float:
        """Of a flow that has not ended."""
        self._move_on(now)
        return self._left_bytes(flow)

    def _left_bytes(self, flow: Flow) -> float:
        return flow.num_bytes if flow.ends_at == inf else min(flow.num_bytes, max(0.0, flow.ends_at - self._served))

    def next_end_s(self) -> float | None:
        """When the next flow ends, counting those that will join before; None when there is none."""
        found = self._find()
        return None if found is None else found[0]

    def pop(self) -> tuple[Flow, float]:
        """Moves time on to the next end. The caller calls `on_end`."""
        found = self._find()
        assert found is not None, "nothing is under way"
        at, number = found
        self._move_on(at)
        flow = self._active[number]
        flow.gone = True
        self._remove(flow, flow.num_bytes)
        self._next = None
        return flow, at

    @property
    def num_flows(self) -> int:
        return len(self._active) + sum(not flow.gone for _, _, flow in self._waiting)

    def moved_bytes(self, now: float) -> float:
        """All that crossed it so far."""
        self._move_on(now)
        return self._ended_bytes + sum(flow.num_bytes - self._left_bytes(flow) for flow in self._active.values())

    def _rate(self, num_flows: int | None = None) -> float:
        """Bytes per second of each flow."""
        count = len(self._active) if num_flows is None else num_flows
        return min(self.bytes_per_s / count, self.flow_bytes_per_s) if count else 0.0

    def _remove(self, flow: Flow, moved_bytes: float) -> None:
        del self._active[flow.number]
        self._ended_bytes += moved_bytes
        if not self._active:
            self._served = 0.0
            self._heap.clear()

    def _move_on(self, to: float) -> None:
        """Flows whose latency is over by then join on the way."""
        assert to >= self._now_s, f"{self.name}: time runs back, from {self._now_s} to {to}"
        assert self._next is None or to <= self._next[0], (
            f"{self.name}: an end at {self._next[0]} is passed over at {to}"
        )
        while self._waiting and (self._waiting[0][2].gone or self._waiting[0][0] <= to):
            begins_s, number, flow = heappop(self._waiting)
            if flow.gone:
                continue
            self._serve(begins_s)
            flow.ends_at = self._served + flow.num_bytes
            self._active[number] = flow
            heappush(self._heap, (flow.ends_at, number))
        self._serve(to)

    def _serve(self, to: float) -> None:
        if to <= self._now_s:
            return
        if self._active:
            self._served += self._rate() * (to - self._now_s)
            self.busy_s += to - self._now_s
        self._now_s = to

    def _find(self) -> tuple[float, int] | None:
        if self._next is None and (self._active or self._waiting):
            self._next = self._look_ahead()
        return self._next

    def _look_ahead(self) -> tuple[float, int] | None:
        heap = self._heap
        while heap and heap[0][1] not in self._active:
            heappop(heap)
        at, served, count = self._now_s, self._served, len(self._active)
        first = heap[0] if heap else None
        waiting = self._waiting.copy()
        while waiting:
            begins_s, number, flow = heappop(waiting)
            if flow.gone:
                continue
            if first is not None:
                end_s = at + max(0.0, first[0] - served) / self._rate(count)
                if end_s <= begins_s:
                    return end_s, first[1]
                served += self._rate(count) * (begins_s - at)
            at, count = max(at, begins_s), count + 1
            mine = (served + flow.num_bytes, number)
            first = mine if first is None else min(first, mine)
        return None if first is None else (at + max(0.0, first[0] - served) / self._rate(count), first[1])

    def check(self, now: float) -> None:
        """Recompute every invariant; raises AssertionError."""
        assert all(not flow.gone and flow.ends_at < inf for flow in self._active.values())
        assert {n for _, n in self._heap} >= set(self._active), "an active flow that never ends"
        moved, most = self.moved_bytes(now), self.bytes_per_s * self.busy_s
        assert self.busy_s <= now * (1 + _ROUNDING) + _ROUNDING, f"{self.name}: busy for {self.busy_s} s of {now} s"
        assert moved <= most or isclose(moved, most, rel_tol=1e-6, abs_tol=1e-3), (
            f"{self.name}: {moved} bytes crossed it, {most} is what {self.bytes_per_s} bytes/s carry in {self.busy_s} s"
        )
