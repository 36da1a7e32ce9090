"""The core and the local runner together, without a process: the same tokens however the work is cut up."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
import random

import pytest

pytest.importorskip("torch")
from tests.runner.conftest import VOCAB, Tiny

from samovar.base.ids import RequestId
from samovar.base.keys import extend_keys, join_keys, pack_tokens, root_key
from samovar.core.config import EngineConfig
from samovar.core.engine import Engine
from samovar.core.events import FinishReason, Output
from samovar.core.request import Request
from samovar.core.sampling import SamplingParams
from samovar.models.checkpoint import open_folder
from samovar.models.load import load_model, new_cache
from samovar.policy.lru import LRU
from samovar.runner.local import LocalRunner

pytestmark = pytest.mark.torch

BLOCK = 4
ROOT = root_key(b"tiny")


def request(number: int, prompt: list[int], **values: object) -> Request:
    tokens = pack_tokens(prompt)
    sampling = SamplingParams(**{"max_tokens": 12, "temperature": 0.0, **values})  # type: ignore[arg-type]
    return Request(RequestId(number), tokens, sampling, ROOT, join_keys(extend_keys(ROOT, tokens, BLOCK)))


@dataclass
class Rig:
    """Drives both to the end of all work; `made[i]` are request i's tokens."""

    engine: Engine
    runner: LocalRunner
    made: dict[int, list[int]] = field(default_factory=dict)
    ends: dict[int, Output] = field(default_factory=dict)
    steps: int = 0

    def run(self, *requests: Request, stagger: int = 0) -> None:
        """`stagger`: plans between one submission and the next."""
        waiting, flight = deque(requests), deque[tuple[int, object]]()
        while waiting or self.engine.has_work:
            if waiting and (self.steps >= stagger * (len(requests) - len(waiting)) or not self.engine.has_work):
                assert self.engine.submit(waiting.popleft(), float(self.steps)).error is None
                continue
            while (plan := self.engine.plan(float(self.steps))) is not None:
                flight.append((plan.step, self.runner.submit(plan)))
                self.steps += 1
            if not flight:
                break
            step, ticket = flight.popleft()
            for output in self.engine.apply(step, ticket.result(), float(self.steps)):  # type: ignore[attr-defined]
                self.made.setdefault(output.request_id, []).extend(output.token_ids)
                if output.finish is not None:
                    self.ends[output.request_id] = output
            self.engine.check()


@pytest.fixture(scope="module")
def model(tiny: Tiny):  # type: ignore[no-untyped-def]
    return load_model(open_folder(tiny.folder), "float32")


@pytest.fixture
def rig(model):  # type: ignore[no-untyped-def]
    runners: list[LocalRunner] = []

    def make(**values: int) -> Rig:
        config = EngineConfig(**{"num_blocks": 64, "block_tokens": BLOCK, "max_model_len": 200, **values})
        runners.append(LocalRunner(model, new_cache(model.spec, config.num_blocks, BLOCK, "float32")))
        return Rig(Engine(config, LRU()), runners[-1])

    yield make
    for runner in runners:
        runner.close()


def prompts(count: int, seed: int = 1) -> list[list[int]]:
    rng = random.Random(seed)
    shared = [rng.randrange(VOCAB) for _ in range(13)]
    return [shared[: rng.randrange(14)] + [rng.randrange(VOCAB) for _ in range(1 + i * 3)] for i in range(count)]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("budget", [5, 16, 512])
def test_greedy_like_transformers(tiny: Tiny, rig, depth: int, budget: int) -> None:  # type: ignore[no-untyped-def]
    """Six prompts that share prefixes, arriving while others run, whole and in chunks, at both depths."""
    bench = rig(depth=depth, max_num_batched_tokens=budget)
    asked = prompts(6)
    bench.run(*(request(i, prompt) for i, prompt in enumerate(asked)), stagger=2)
    for i, prompt in enumerate(asked):
        assert bench.made[i] == tiny.greedy(prompt, 12), i
        assert bench.ends[i].finish is FinishReason.LENGTH


@pytest.mark.parametrize("depth", [1, 2])
def test_preempted_requests_lose_nothing(tiny: Tiny, rig, depth: int) -> None:  # type: ignore[no-untyped-def]
    """A pool too small for all: random sampling with penalties gives what each request gives alone."""
    asked = prompts(5, seed=3)
    values = [{"temperature": 1.2, "seed": i, "presence_penalty": 0.4, "max_tokens": 40} for i in range(5)]
    alone = rig(depth=1)
    for i, prompt in enumerate(asked):
        alone.run(request(i, prompt, **values[i]))
    tight = rig(depth=depth, num_blocks=32, max_model_len=128)
    tight.run(*(request(i, prompt, **values[i]) for i, prompt in enumerate(asked)))
    assert tight.engine.stats().preemptions > 0
    assert tight.made == alone.made


def test_a_second_turn_reads_the_cache(tiny: Tiny, rig) -> None:  # type: ignore[no-untyped-def]
    bench = rig()
    prompt = prompts(1)[0] * 5
    bench.run(request(0, prompt))
    longer = prompt + bench.made[0] + [1, 2, 3]
    bench.run(request(1, longer))
    assert bench.ends[1].num_cached_tokens >= len(prompt) // BLOCK * BLOCK > 0
    assert bench.made[1] == tiny.greedy(longer, 12)


def test_stop_tokens_and_min_tokens(tiny: Tiny, rig) -> None:  # type: ignore[no-untyped-def]
    bench = rig()
    prompt = prompts(3)[2]
    free = tiny.greedy(prompt, 12)
    stop = free[4]
    bench.run(request(0, prompt, stop_token_ids=(stop,)))
    assert bench.made[0] == free[: free.index(stop) + 1]
    assert bench.ends[0].finish is FinishReason.STOP and bench.ends[0].stop_token == stop
    bench.run(request(1, prompt, stop_token_ids=(stop,), min_tokens=8))
    assert stop not in bench.made[1][:8] and len(bench.made[1]) >= 8


@pytest.mark.parametrize("depth", [1, 2])
def test_a_step_that_fails_once_costs_nobody_a_token(tiny: Tiny, rig, model, depth: int) -> None:  # type: ignore[no-untyped-def]
    """Every tenth forward raises, among prefills and decodes, at depth 2 with a plan built on it already in flight."""
    bench = rig(depth=depth, max_num_batched_tokens=16, max_step_failures=50)
    calls = 0

    class Flaky:
        spec = model.spec

        def forward(self, batch, cache):  # type: ignore[no-untyped-def]
            nonlocal calls
            calls += 1
            if calls % 10 == 0:
                raise RuntimeError("now and then")
            return model.forward(batch, cache)

    bench.runner._model = Flaky()
    asked = prompts(6)
    bench.run(*(request(i, prompt, frequency_penalty=0.2) for i, prompt in enumerate(asked)), stagger=2)
    assert bench.engine.stats().failed_steps >= 2
    whole = rig(depth=1)
    whole.run(*(request(i, prompt, frequency_penalty=0.2) for i, prompt in enumerate(asked)))
    assert bench.made == whole.made


@pytest.mark.parametrize("depth", [1, 2])
def test_one_that_cannot_be_sampled_ends_alone(tiny: Tiny, rig, depth: int) -> None:  # type: ignore[no-untyped-def]
    """Hopeless from its first token, or from its third: the four beside them, whenever they arrive, lose nothing."""
    everything = tuple(range(VOCAB))
    bench = rig(depth=depth, max_num_batched_tokens=16)
    asked = prompts(6)
    hopeless = {
        0: request(0, asked[0], min_tokens=1, stop_token_ids=everything),
        # What came once comes again, until its logit overflows.
        1: request(1, asked[1], frequency_penalty=-1e308),
    }
    bench.run(*(hopeless.get(i, request(i, prompt)) for i, prompt in enumerate(asked)), stagger=2)
    for i, prompt in enumerate(asked):
        if i in hopeless:
            assert bench.ends[i].finish is FinishReason.ERROR and bench.ends[i].error.code == "step_failed"
        else:
            assert bench.made[i] == tiny.greedy(prompt, 12), i
    assert len(bench.made[1]) == 2 and bench.engine.stats().failed_steps == 0
