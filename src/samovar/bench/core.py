"""What the scheduling core itself costs per step, without a model: `samovar bench core`.

Every decoding request is one row of every step, so plan + apply is paid per token of every agent. Positions are
staggered inside their blocks, as in a running server: in each step one in `block_tokens` requests needs a block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import gc
import random
from statistics import median
import time

import msgspec

from samovar.base.ids import RequestId
from samovar.base.keys import extend_keys, join_keys, pack_tokens, root_key
from samovar.core.config import EngineConfig
from samovar.core.engine import Engine
from samovar.core.plan import StepPlan, StepResult
from samovar.core.request import Request
from samovar.core.sampling import SamplingParams
from samovar.policy.lru import LRU

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CoreBench:
    requests: int = 256
    context: int = 100_000
    steps: int = 1_000
    warmup: int = 100
    depth: int = 2
    block_tokens: int = 16
    admit_tokens: int = 131_072
    admit_cached: int = 130_000
    admit_repeats: int = 9
    seed: int = 0


@dataclass(frozen=True, slots=True)
class CoreFigures:
    step_median_ms: float
    step_p99_ms: float
    step_max_ms: float
    plan_bytes: int
    """Largest encoded plan of the measured steps."""
    admit_hash_ms: float
    """Median time to make the block keys of the long prompt."""
    admit_submit_ms: float
    admit_plan_ms: float
    """The plan that admits it, beyond an ordinary plan: look-up, adoption, first chunk."""
    admit_total_ms: float
    admit_found_tokens: int


def _result(plan: StepPlan) -> StepResult:
    return StepResult(plan.step, tuple((7,) if chunk.samples else () for chunk in plan.chunks))


def _request(bench: CoreBench, number: int, tokens: bytes, root: bytes) -> Request:
    keys = join_keys(extend_keys(root, tokens, bench.block_tokens))
    return Request(RequestId(number), tokens, SamplingParams(max_tokens=10**6), root, keys)


def _ids(rng: random.Random, count: int) -> bytes:
    # Random bytes with the top byte cleared: ids below 2**24, made in C.
    data = bytearray(rng.randbytes(count * 4))
    data[3::4] = bytes(count)
    return bytes(data)


def run(bench: CoreBench, progress: Progress) -> CoreFigures:
    rng = random.Random(bench.seed)
    budget = max(8192, bench.requests + 1)
    # The first requests decode while the others are still being admitted.
    admission_steps = bench.requests * (bench.context // (budget - bench.requests) + 3)
    other_steps = bench.warmup + bench.steps + 40 * (bench.admit_repeats + 2)
    tokens = bench.context + admission_steps + other_steps + bench.block_tokens
    per_request = tokens // bench.block_tokens + 2
    num_blocks = bench.requests * per_request + 2 * (bench.admit_tokens // bench.block_tokens + 2)
    config = EngineConfig(
        num_blocks=num_blocks,
        block_tokens=bench.block_tokens,
        max_num_seqs=bench.requests + 1,
        max_num_batched_tokens=budget,
        max_model_len=min(num_blocks * bench.block_tokens, 2 * max(bench.context, bench.admit_tokens)),
        depth=bench.depth,
    )
    engine = Engine(config, LRU())
    driver = _Driver(engine)
    root = root_key(b"bench")
    for number in range(bench.requests):
        if number % 32 == 0:
            progress(f"admitting request {number} of {bench.requests}")
        stagger = number % bench.block_tokens
        verdict = engine.submit(_request(bench, number, _ids(rng, bench.context + stagger), root), driver.now)
        assert verdict.error is None
        while driver.num_prefilling_chunks():
            pass
    gc.collect()
    gc.freeze()  # as the engine process does once it is ready
    progress(f"measuring {bench.steps} steps")
    for _ in range(bench.warmup):
        driver.step()
    times: list[float] = []
    largest = 0
    encoder = msgspec.msgpack.Encoder()
    for _ in range(bench.steps):
        seconds, plan = driver.step()
        times.append(seconds)
        largest = max(largest, len(encoder.encode(plan)))
    times.sort()
    progress("measuring admissions")
    admit, found = _admissions(bench, engine, driver, rng, root, baseline_s=median(times))
    return CoreFigures(
        step_median_ms=1e3 * median(times),
        step_p99_ms=1e3 * times[int(0.99 * (len(times) - 1))],
        step_max_ms=1e3 * times[-1],
        plan_bytes=largest,
        admit_found_tokens=found,
        **admit,
    )


class _Driver:
    """Keeps the pipeline full and answers every plan at once."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.now = 0.0
        self.queue: list[StepPlan] = []

    def step(self) -> tuple[float, StepPlan]:
        """One plan and one apply, with `depth` plans in flight in between. Returns their seconds and the plan."""
        self.now += 0.01
        begin = time.perf_counter()
        plan = self.engine.plan(self.now)
        middle = time.perf_counter()
        assert plan is not None
        self.queue.append(plan)
        seconds = middle - begin
        if len(self.queue) >= self.engine.config.depth:
            oldest = self.queue.pop(0)
            result = _result(oldest)
            begin = time.perf_counter()
            self.engine.apply(oldest.step, result, self.now)
            seconds += time.perf_counter() - begin
        return seconds, plan

    def num_prefilling_chunks(self) -> int:
        _, plan = self.step()
        return sum(1 for chunk in plan.chunks if chunk.num_tokens > 1)


def _admissions(
    bench: CoreBench, engine: Engine, driver: _Driver, rng: random.Random, root: bytes, baseline_s: float
) -> tuple[dict[str, float], int]:
    """A prompt whose head is cached: what its front end hashes, and what submitting and admitting it costs."""
    head = _ids(rng, bench.admit_cached)
    found = 0
    hash_s: list[float] = []
    submit_s: list[float] = []
    plan_s: list[float] = []
    for repeat in range(bench.admit_repeats + 1):
        number = 10_000 + repeat
        tokens = head + (pack_tokens([repeat]) + _ids(rng, bench.admit_tokens - bench.admit_cached - 1))
        begin = time.perf_counter()
        request = _request(bench, number, tokens, root)
        hashed = time.perf_counter()
        engine.submit(request, driver.now)
        submitted = time.perf_counter()
        seconds, plan = driver.step()
        if repeat:  # the first one computes the head for the others
            hash_s.append(hashed - begin)
            submit_s.append(submitted - hashed)
            plan_s.append(max(0.0, seconds - baseline_s))
            found = next(chunk.start for chunk in plan.chunks if chunk.request_id == number)
        while driver.num_prefilling_chunks():
            pass
        engine.finish(RequestId(number), 1, driver.now)
        for _ in range(3):
            driver.step()
    figures = {
        "admit_hash_ms": 1e3 * median(hash_s),
        "admit_submit_ms": 1e3 * median(submit_s),
        "admit_plan_ms": 1e3 * median(plan_s),
        "admit_total_ms": 1e3 * median(a + b + c for a, b, c in zip(hash_s, submit_s, plan_s, strict=True)),
    }
    return figures, found
