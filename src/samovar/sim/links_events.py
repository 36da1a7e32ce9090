"""The links of one machine in one order of time: ends of flows, and deadlines, each at its own moment, whoever asks
and however late. What one of them sets off (the next stage of a transfer) begins at that moment, not when it is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from samovar.sim.links import Channel, Flow
from samovar.spec.link import Link


@dataclass(slots=True, eq=False)
class Timer:
    at_s: float
    on_time: Callable[[float], None]
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Directions:
    """Both channels of a link; `inward` is towards the device."""

    inward: Channel
    outward: Channel


class LinkEvents:
    """Owns the channels: flows begin and are taken out through it. Time never decreases from call to call."""

    __slots__ = ("_channels", "_is_known", "_next", "_number", "_timers", "now_s")

    def __init__(self) -> None:
        self._channels: list[Channel] = []
        self._timers: list[tuple[float, int, Timer]] = []
        self._number = 0
        self._is_known = True
        self._next: tuple[float, Channel | None] | None = None
        """What happens next, if it is known: a flow's end in a channel, or a timer's time. None: nothing."""
        self.now_s = 0.0

    @property
    def channels(self) -> Sequence[Channel]:
        return self._channels

    def add(self, link: Link, name: str, inward: str = "in", outward: str = "out") -> Directions:
        """A link of the machine, as two channels that share nothing."""
        pair = Directions(
            Channel(f"{name} {inward}", link.in_bytes_per_s, link.latency_s, link.flow_bytes_per_s),
            Channel(f"{name} {outward}", link.out_bytes_per_s, link.latency_s, link.flow_bytes_per_s),
        )
        self._channels += (pair.inward, pair.outward)
        return pair

    def begin(
        self, channel: Channel, num_bytes: float, now: float, on_end: Callable[[float], None], *, latency: bool = True
    ) -> Flow:
        """`on_end` gets the moment, which may be before the `now` of the call that finds it."""
        self._is_known = False
        return channel.begin(num_bytes, now, on_end, latency=latency)

    def take_out(self, channel: Channel, flow: Flow, now: float) -> float:
        """Ends a flow early. Returns the bytes that it had left."""
        self._is_known = False
        return channel.take_out(flow, now)

    def at(self, at_s: float, on_time: Callable[[float], None]) -> Timer:
        timer = Timer(at_s, on_time)
        self._number += 1
        self._is_known = False
        heappush(self._timers, (at_s, self._number, timer))
        return timer

    def call_off(self, timer: Timer) -> None:
        timer.gone = True
        self._is_known = False

    def next_s(self) -> float | None:
        """When something happens next; None: never, if nothing is begun."""
        found = self._find()
        return None if found is None else found[0]

    def advance(self, now: float) -> None:
        """Everything up to `now`, in the order of time; what arrives at a deadline is in time."""
        assert now >= self.now_s, f"time runs back, from {self.now_s} to {now}"
        while (found := self._find()) is not None and found[0] <= now:
            at_s, channel = found
            self.now_s = max(self.now_s, at_s)
            self._is_known = False
            if channel is not None:
                flow, _ = channel.pop()
                flow.on_end(at_s)
            else:
                _, _, timer = heappop(self._timers)
                timer.on_time(at_s)
        self.now_s = now

    def _find(self) -> tuple[float, Channel | None] | None:
        if not self._is_known:
            self._next, self._is_known = self._look(), True
        return self._next

    def _look(self) -> tuple[float, Channel | None] | None:
        first: tuple[float, Channel | None] | None = None
        for channel in self._channels:
            end_s = channel.next_end_s()
            if end_s is not None and (first is None or end_s < first[0]):
                first = (end_s, channel)
        while self._timers and self._timers[0][2].gone:
            heappop(self._timers)
        if self._timers and (first is None or self._timers[0][0] < first[0]):
            first = (self._timers[0][0], None)
        return first

    def check(self) -> None:
        """Recompute every invariant; raises AssertionError."""
        for channel in self._channels:
            channel.check(self.now_s)
        pending = [timer for _, _, timer in self._timers if not timer.gone]
        assert all(timer.at_s >= self.now_s for timer in pending), "a deadline passed by"
        assert not self._is_known or self._next == self._look(), "what happens next is not what is expected"
