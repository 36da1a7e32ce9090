"""The size of a step: chosen from a rate, and corrected where steps show that the rate was measured too low."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.core.budget import FASTER, IN_A_ROW, LARGEST_STEP_TOKENS, StepBudget, step_tokens
from samovar.core.config import EngineConfig
from samovar.core.engine import Engine
from samovar.core.replay import Recorder, replay
from samovar.policy.lru import LRU
from tests.core.helpers import make_request
from tests.core.oracle_runner import OracleRunner, expected_output

TARGET_S, MIXED_S = 0.2, 0.05


@pytest.mark.parametrize(
    ("rate", "block", "expected"),
    [(1000, 16, 192), (1001, 1, 200), (50, 16, 64), (0, 48, 96), (1e9, 16, 8192), (1e9, 48, 8160), (10, 256, 256)],
)
def test_known_sizes(rate: float, block: int, expected: int) -> None:
    assert step_tokens(rate, block, TARGET_S) == expected


def test_a_shorter_target() -> None:
    assert step_tokens(4000, 16, MIXED_S) == 192


@given(st.floats(0, 1e7), st.integers(1, 512))
def test_whole_blocks_within_the_target(rate: float, block: int) -> None:
    size = step_tokens(rate, block, TARGET_S)
    assert size % block == 0 and 64 <= size <= max(LARGEST_STEP_TOKENS, block)
    assert size <= rate * TARGET_S or size < 64 + block


# -- what steps show --------------------------------------------------------------------------------------------------


def config(rate: float = 800.0, **fields: float) -> EngineConfig:
    """As it is chosen where the machine was measured to compute so many tokens a second."""
    most, mixed = step_tokens(rate, 16, TARGET_S), step_tokens(rate, 16, MIXED_S)
    found = EngineConfig(
        num_blocks=512,
        max_num_batched_tokens=most,
        max_num_mixed_prefill_tokens=mixed,
        step_target_s=TARGET_S,
        mixed_step_target_s=MIXED_S,
        depth=1,
    )
    return replace(found, **fields)


def after(
    start: EngineConfig, *rates: float, tokens: int = 160, decodes: int = 0, budget: StepBudget | None = None
) -> EngineConfig:
    budget, now = budget or StepBudget(), start
    for rate in rates:
        now = budget.after(now, tokens, decodes, tokens / rate) or now
    return now


def test_steps_that_are_faster_make_it_grow_to_what_the_slowest_of_them_shows() -> None:
    grown = after(config(), 4200.0, 4000.0, 5000.0)
    assert grown == config(4000.0), "as if it had been measured then"
    assert after(grown, *[4000.0] * 20) is grown


def test_it_takes_several_in_a_row() -> None:
    start = config()
    assert after(start, 4000.0, 4000.0, 700.0, 4000.0, 4000.0) is start
    assert after(start, *[1.2 * 800.0] * 20) is start, "that is within what any two measurements differ by"


def test_steps_that_say_nothing_of_it() -> None:
    start = config()
    assert after(start, *[1e5] * 9, tokens=63) is start and after(start, *[1e5] * 9, decodes=1) is start
    budget = StepBudget()
    assert [budget.after(start, 160, 0, 0.0) for _ in range(9)] == [None] * 9


def test_what_was_given_stays() -> None:
    fixed = config(step_target_s=0.0, mixed_step_target_s=0.0)
    assert after(fixed, *[1e5] * 9) is fixed
    half = after(config(step_target_s=0.0), *[4000.0] * 9)
    assert (half.max_num_batched_tokens, half.max_num_mixed_prefill_tokens) == (160, 192)
    half = after(config(mixed_step_target_s=0.0), *[4000.0] * 9)
    assert (half.max_num_batched_tokens, half.max_num_mixed_prefill_tokens) == (800, 64)


def test_the_largest_step_is_the_end_of_it() -> None:
    grown = after(config(), *[1e9] * IN_A_ROW)
    assert grown.max_num_batched_tokens == LARGEST_STEP_TOKENS and after(grown, *[1e9] * 9) is grown


@given(st.lists(st.floats(1.0, 1e6), max_size=40))
def test_it_only_grows_and_never_beyond_what_was_seen(rates: list[float]) -> None:
    budget, now = StepBudget(), config()
    for rate in rates:
        grown = budget.after(now, 160, 0, 160 / rate)
        if grown is not None:
            assert grown != now and now.max_num_batched_tokens <= grown.max_num_batched_tokens
            assert now.max_num_mixed_prefill_tokens <= grown.max_num_mixed_prefill_tokens
            now = grown
    assert now.max_num_batched_tokens <= max(160.0, step_tokens(max(rates, default=1.0) * 1.0001, 16, TARGET_S))


# -- in an engine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "longest"), [(4050.0, 800), (FASTER * 800.0 - 50.0, 160), (300.0, 160)])
def test_a_machine_that_was_busy_at_the_start_makes_long_steps_later(rate: float, longest: int) -> None:
    """It was measured at 800 tokens a second. The log of it all replays."""
    log: list = []
    recorder = Recorder(config(), LRU(), sink=log.append)
    sizes = driven(recorder, rate)
    assert max(sizes) == longest and sizes[0] == 160
    assert recorder.config.max_num_batched_tokens == longest
    assert replay(recorder.header, log, LRU()) == len(sizes)


def driven(engine: Engine | Recorder, rate: float) -> list[int]:
    """Three prompts, a step after the other. Returns the prefill tokens of each."""
    runner, now, sizes = OracleRunner(16), 0.0, []
    for number in range(3):
        prompt = [(i * (number + 3)) % 50 for i in range(1200)]
        engine.submit(make_request(number, prompt, 1), now)
        made: list[int] = []
        while (plan := engine.plan(now)) is not None:
            runner.submit(plan)
            sizes.append(sum(chunk.num_tokens for chunk in plan.chunks))
            now += sizes[-1] / rate
            for output in engine.apply(plan.step, runner.run(), now):
                made += output.token_ids
        assert made == expected_output(prompt, 1)
    engine.check()
    return sizes
