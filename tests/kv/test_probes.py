"""A tier that is faster than it is taken for is found out, and one that is not costs next to nothing.

The core and real tiers on a virtual clock: computing takes its time per token, a load its time per byte.
"""

from __future__ import annotations

from msgspec.structs import replace
import pytest

from samovar.core.config import EngineConfig
from samovar.core.engine import Engine
from samovar.core.plan import Load
from samovar.kv.rates import PROBE_EVERY_S, PROBE_S
from samovar.kv.tiers import TieredConnector, Tuning
from samovar.policy.lru import LRU
from tests.core.helpers import make_request
from tests.core.oracle_runner import OracleRunner, expected_output

BLOCK_BYTES = 1_000_000
PREFILL_PER_S = 200_000.0
"""A block of 16 tokens takes 80 us: reading it pays above 12.5 GB/s, and 3 are assumed."""
CONTEXT = 16 * 64 + 1
GAP_S = 5.0


class Machine:
    """Two conversations of which the device holds one."""

    def __init__(self, host_bytes_per_s: float, *, probes: bool) -> None:
        self.tiers = TieredConnector(1000, 0, LRU(), BLOCK_BYTES, Tuning(probes=probes))
        config = EngineConfig(num_blocks=65, max_model_len=65 * 16, depth=1, max_num_batched_tokens=4096)
        self.engine = Engine(config, LRU(), self.tiers)
        self.runner = OracleRunner(16)
        self.bytes_per_s = host_bytes_per_s
        self.now = 0.0
        self.loads: list[int] = []
        """Blocks of each."""
        self.load_s = 0.0

    def turn(self, number: int) -> None:
        prompt = [(7 * i + number % 2) % 50 for i in range(CONTEXT)]
        verdict = self.engine.submit(make_request(number, prompt, 1), self.now)
        assert verdict.error is None
        tokens: list[int] = []
        while self.engine.has_work:
            tokens += self._step()
        assert tokens == expected_output(prompt, 1)
        self.engine.check()
        self.now += GAP_S

    def _step(self) -> list[int]:
        plan = self.engine.plan(self.now)
        found: list[int] = []
        if plan is not None:
            self.runner.submit(plan)
            result = self.runner.run()
            self.now += sum(chunk.num_tokens for chunk in plan.chunks) / PREFILL_PER_S
            for output in self.engine.apply(plan.step, result, self.now):
                found += output.token_ids
        while self.runner.moving:
            self._land()
        return found

    def _land(self) -> None:
        transfer = self.runner.moving[0]
        seconds = len(transfer.keys) * BLOCK_BYTES / self.bytes_per_s
        if isinstance(transfer, Load):
            self.now += seconds
            self.load_s += seconds
            self.loads.append(len(transfer.keys))
        (done,) = self.runner.land(1)
        self.engine.transferred([replace(done, seconds=seconds)], self.now)


def played(host_bytes_per_s: float, *, probes: bool, turns: int = 40) -> Machine:
    machine = Machine(host_bytes_per_s, probes=probes)
    for number in range(turns):
        machine.turn(number)
    return machine


def test_without_a_probe_a_guess_stays_one() -> None:
    machine = played(40e9, probes=False)
    assert machine.loads == []
    assert machine.engine.stats().declined_load_blocks == 38 * 64 and machine.tiers.report()[0].bytes_per_s == 0.0


def test_a_tier_that_is_faster_than_computing_is_found_out() -> None:
    """The first offer is a probe, all that follow are loads."""
    machine = played(40e9, probes=True)
    assert machine.loads[0] < 64 and machine.loads[1:] == [64] * 37
    assert machine.tiers.report()[0].bytes_per_s == pytest.approx(40e9)
    plain = played(40e9, probes=False)
    assert machine.now - 40 * GAP_S < 0.5 * (plain.now - 40 * GAP_S)


def test_a_tier_that_is_not_costs_next_to_nothing() -> None:
    """No load takes more than twice a probe's time, and none comes before its time."""
    machine = played(2e9, probes=True)
    assert 0 < len(machine.loads) <= 1 + machine.now / PROBE_EVERY_S
    assert machine.load_s <= 2 * PROBE_S * len(machine.loads)
    assert machine.load_s < 0.002 * machine.now
    assert machine.tiers.report()[0].bytes_per_s == pytest.approx(2e9)


def test_a_tier_that_becomes_fast_is_found_out_again() -> None:
    machine = played(2e9, probes=True)
    machine.bytes_per_s = 40e9
    for number in range(100, 300):
        machine.turn(number)
    assert machine.loads[-1] == 64 and sum(machine.loads) > 100 * 64


def test_what_is_known_beforehand_is_not_tried() -> None:
    """A simulator's rates are no guesses."""
    assert played(3e9, probes=False).loads == []
