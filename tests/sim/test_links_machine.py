"""A channel against slicing time finely."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from samovar.sim.links import Channel, Flow

SLICE_S = 1 / 256


@dataclass
class Sliced:
    left: float
    waits_s: float
    ended_s: float = inf
    out: bool = False

    @property
    def moves(self) -> bool:
        return self.ended_s == inf and not self.out and self.waits_s <= 0.0


class ChannelMachine(RuleBasedStateMachine):
    @initialize(rate=st.integers(1, 8), cap=st.sampled_from([inf, 1.0, 2.5]), latency=st.sampled_from([0.0, 0.25, 1.0]))
    def start(self, rate: int, cap: float, latency: float) -> None:
        self.channel = Channel("link", float(rate), latency, cap)
        self.now = 0.0
        self.flows: list[tuple[Flow, Sliced]] = []
        self.ends: dict[int, float] = {}
        self.moved = 0.0

    @rule(num_bytes=st.integers(0, 12))
    def begin(self, num_bytes: int) -> None:
        number = len(self.flows)
        flow = self.channel.begin(num_bytes, self.now, lambda at: self.ends.__setitem__(number, at))
        self.flows.append((flow, Sliced(num_bytes, self.channel.latency_s)))

    @precondition(lambda self: any(not flow.gone for flow, _ in self.flows))
    @rule(data=st.data())
    def take_out(self, data: st.DataObject) -> None:
        there = [i for i, (flow, _) in enumerate(self.flows) if not flow.gone]
        flow, sliced = self.flows[data.draw(st.sampled_from(there))]
        left = self.channel.take_out(flow, self.now)
        assert abs(left - sliced.left) <= self.tolerance * self.channel.bytes_per_s
        sliced.out = True

    @rule(slices=st.integers(1, 512))
    def wait(self, slices: int) -> None:
        for _ in range(slices):
            self._slice()
        until = self.now + slices * SLICE_S
        while (end_s := self.channel.next_end_s()) is not None and end_s <= until:
            flow, at = self.channel.pop()
            assert at == end_s >= self.now
            flow.on_end(at)
        self.now = until

    def _slice(self) -> None:
        count = sum(sliced.moves for _, sliced in self.flows)
        rate = min(self.channel.bytes_per_s / count, self.channel.flow_bytes_per_s) if count else 0.0
        for number, (_, sliced) in enumerate(self.flows):
            if sliced.moves:
                step = min(sliced.left, rate * SLICE_S)
                sliced.left -= step
                self.moved += step
                if sliced.left <= 1e-9:
                    sliced.ended_s = self.ends.get(number, inf)
                    sliced.out = True
            elif not sliced.out:
                sliced.waits_s -= SLICE_S

    @property
    def tolerance(self) -> float:
        """Seconds: each flow may be off by a slice, and drags the others along."""
        return SLICE_S * (len(self.flows) + 2)

    @invariant()
    def both_have_moved_as_much(self) -> None:
        if not hasattr(self, "channel"):
            return
        self.channel.check(self.now)
        assert abs(self.channel.moved_bytes(self.now) - self.moved) <= self.tolerance * self.channel.bytes_per_s
        for flow, sliced in self.flows:
            if not flow.gone and not sliced.out:
                left = self.channel.left_bytes(flow, self.now)
                assert abs(left - sliced.left) <= self.tolerance * self.channel.bytes_per_s
            assert not (flow.gone and not sliced.out and sliced.left > self.tolerance * self.channel.bytes_per_s)


TestChannelMachine = ChannelMachine.TestCase
TestChannelMachine.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)
