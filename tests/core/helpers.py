"""Short ways to make requests and drive an engine by hand."""

from __future__ import annotations

from collections import defaultdict

from samovar.base.keys import extend_keys, join_keys, pack_tokens, root_key
from samovar.core.config import EngineConfig
from samovar.core.engine import Engine
from samovar.core.events import FinishReason, Output
from samovar.core.plan import Gate, StepPlan
from samovar.core.request import Request
from samovar.core.sampling import SamplingParams
from samovar.policy.lru import LRU
from tests.core.oracle_runner import OracleRunner

ROOT = root_key(b"test")


def make_request(
    id: int, prompt: list[int], max_tokens: int = 4, *, block_tokens: int = 16, root: bytes = ROOT, **fields
) -> Request:
    packed = pack_tokens(prompt)
    sampling = SamplingParams(max_tokens=max_tokens, **fields.pop("sampling", {}))
    return Request(id, packed, sampling, root, join_keys(extend_keys(root, packed, block_tokens)), **fields)


class Bench:
    """An engine with an oracle runner; time is the number of the call."""

    def __init__(self, connector=None, policy=None, accept=None, engine=None, **config) -> None:
        config.setdefault("num_blocks", 64)
        config.setdefault("max_model_len", config["num_blocks"] * config.get("block_tokens", 16))
        self.config = EngineConfig(**config)
        self.engine = engine or Engine(self.config, policy or LRU(), connector)
        self.runner = OracleRunner(self.config.block_tokens, accept)
        self.now = 0.0
        self.plans: list[StepPlan] = []
        self.outputs: list[Output] = []
        self.tokens: dict[int, list[int]] = defaultdict(list)
        self.finished: dict[int, FinishReason] = {}
        self.cached: dict[int, int] = {}
        self.misses: dict = {}
        self.first_token_step: dict[int, int] = {}

    def submit(self, *requests: Request):
        verdicts = [self.engine.submit(request, self.now) for request in requests]
        return verdicts[0] if len(verdicts) == 1 else verdicts

    def plan(self, gate: Gate | None = None) -> StepPlan | None:
        self.now += 1.0
        plan = self.engine.plan(self.now, gate)
        if plan is not None:
            self.plans.append(plan)
            self.runner.submit(plan)
        return plan

    def land(self, count: int = 1_000_000, bad: tuple[int, ...] = ()) -> list[Output]:
        done = self.runner.land(count, bad)
        return self.engine.transferred(done, self.now) if done else []

    def apply(self, *, land: bool = True, **faults) -> list[Output]:
        self.now += 1.0
        result = self.runner.run(**faults)
        outputs = self.engine.apply(result.step, result, self.now)
        if land:
            outputs += self.land()
        for output in outputs:
            if output.token_ids and output.request_id not in self.first_token_step:
                self.first_token_step[output.request_id] = result.step
                self.misses[output.request_id] = output.miss
            self.tokens[output.request_id] += output.token_ids
            self.cached[output.request_id] = output.num_cached_tokens
            if output.finish is not None:
                self.finished[output.request_id] = output.finish
        self.outputs += outputs
        return outputs

    def step(self, gate: Gate | None = None, **faults) -> StepPlan | None:
        """Plan as deep as the engine goes, then apply one result."""
        plan = first = self.plan(gate)
        while plan is not None and len(self.runner.queue) < self.config.depth:
            plan = self.plan(gate)
        if self.runner.queue:
            self.apply(**faults)
            first = first or self.plans[-1]
        return first

    def drain(self, limit: int = 10_000) -> None:
        for _ in range(limit):
            if not self.engine.has_work:
                break
            self.land()
            moved = self.step() is not None or self.runner.queue or not self.engine.has_work
            assert moved or self.engine.wake_at is not None, "work is left but nothing moves"
        assert not self.engine.has_work, "work is left"
        self.engine.check()

    def tokens_in(self, plan: StepPlan) -> dict[int, int]:
        return {chunk.request_id: chunk.num_tokens for chunk in plan.chunks}
