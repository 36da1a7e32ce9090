"""How fast prompts are computed is learned from what was computed."""

from __future__ import annotations

from samovar.core.config import EngineConfig
from samovar.core.engine import Engine
from samovar.core.plan import StepResult
from samovar.policy.lru import LRU
from tests.core.helpers import make_request


def test_what_a_runner_left_out_after_a_failed_step_is_not_fast() -> None:
    engine = Engine(EngineConfig(num_blocks=512, max_num_batched_tokens=160, depth=2), LRU())
    now = 0.0
    engine.submit(make_request(1, list(range(50)) * 20, 1), now)
    first = engine.plan(now)
    assert first is not None
    now += 0.2
    engine.apply(first.step, StepResult(first.step, tuple(() for _ in first.chunks)), now)
    assert abs(engine.stats().prefill_tokens_per_s - 160 / 0.2) < 1e-6
    for _ in range(2):
        failing, behind = engine.plan(now), engine.plan(now)
        assert failing is not None and behind is not None and behind.chunks
        now += 0.2
        engine.apply(failing.step, StepResult(failing.step, error="no memory"), now)
        now += 1e-4  # what rests on the failed step is left out: an answer at once, for as many tokens
        engine.apply(behind.step, StepResult(behind.step, tuple(() for _ in behind.chunks)), now)
        assert abs(engine.stats().prefill_tokens_per_s - 160 / 0.2) < 1e-6
