"""A core, a local runner over the tiny model and real tiers, driven by the wall clock in one thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
import random
import threading
import time

from tests.runner.conftest import VOCAB

from samovar.base.ids import RequestId
from samovar.base.keys import extend_keys, join_keys, pack_tokens, root_key
from samovar.core.config import EngineConfig
from samovar.core.engine import Engine
from samovar.core.events import Output
from samovar.core.ports import Mover
from samovar.core.request import Request
from samovar.core.sampling import SamplingParams
from samovar.kv.settings import TierSettings, tiers_of
from samovar.models.load import Model, new_cache
from samovar.policy.lru import LRU
from samovar.policy.retention import RetentionPolicy
from samovar.pool.arena import slot_stride_bytes
from samovar.runner.local import LocalRunner
from samovar.runner.tiers import Device, Tiers, make_tiers

BLOCK = 4
ROOT = root_key(b"tiny")
NAMESPACE = b"n" * 16
PATIENCE_S = 20.0


@dataclass
class TierRig:
    """`made[i]` are request i's tokens."""

    engine: Engine
    runner: LocalRunner
    wake: threading.Event
    tiers: Tiers | None = None
    reports: list[str] = field(default_factory=list)
    made: dict[int, list[int]] = field(default_factory=dict)
    ends: dict[int, Output] = field(default_factory=dict)
    firsts: dict[int, Output] = field(default_factory=dict)

    def run(self, *requests: Request) -> None:
        """To the end of all work, transfers included."""
        for request in requests:
            assert self.engine.submit(request, time.monotonic()).error is None
        self._until(lambda: not self.engine.has_work)

    def settle(self) -> None:
        """Until what is to survive a restart would; with a disk that fails, until nothing is done any more."""
        assert self.tiers is not None
        tiers = self.tiers
        self._until(lambda: not self.engine.has_work and (not tiers.not_durable_blocks() or _fails(tiers)))

    def _until(self, over) -> None:  # type: ignore[no-untyped-def]
        deadline, flight = time.monotonic() + PATIENCE_S, deque[tuple[int, object]]()
        while flight or not over():
            assert time.monotonic() < deadline, "work is left and nothing moves"
            self.wake.clear()
            moved = False
            while flight and flight[0][1].done():  # type: ignore[attr-defined]
                step, ticket = flight.popleft()
                self._take(self.engine.apply(step, ticket.result(), time.monotonic()))  # type: ignore[attr-defined]
                moved = True
            if done := self.runner.transfers():
                self._take(self.engine.transferred(done, time.monotonic()))
                moved = True
            while (plan := self.engine.plan(time.monotonic())) is not None:
                flight.append((plan.step, self.runner.submit(plan)))
                moved = True
            self.engine.check()
            if not moved:
                self.wake.wait(0.02)

    def _take(self, outputs: list[Output]) -> None:
        for output in outputs:
            self.made.setdefault(output.request_id, []).extend(output.token_ids)
            self.firsts.setdefault(output.request_id, output)
            if output.finish is not None:
                self.ends[output.request_id] = output

    def close(self) -> None:
        self.runner.close()
        if self.tiers is not None:
            self.tiers.close()


def make_rig(
    model: Model,
    settings: TierSettings | None,
    policy: RetentionPolicy | None = None,
    wrap: Callable[[Mover], Mover] = lambda mover: mover,
    namespace: bytes = NAMESPACE,
    **values: int,
) -> TierRig:
    """`wrap`: what the runner gets in place of the tiers' mover."""
    # Steps so short that they give no prefill rate: everything that is found is loaded, however slow that is.
    short = {"max_num_batched_tokens": 16}
    config = EngineConfig(**{"num_blocks": 24, "block_tokens": BLOCK, "max_model_len": 90, **short, **values})
    cache = new_cache(model.spec, config.num_blocks, BLOCK, "float32")
    for pool in (*cache.keys, *cache.values):
        pool.fill_(float("nan"))  # whoever reads what nobody wrote gets caught
    policy, wake = policy or LRU(), threading.Event()
    reports: list[str] = []
    tiers: Tiers | None = None
    if settings is not None:
        device = Device(cache, config.num_blocks, namespace)
        tiers = make_tiers(settings, device, policy, None, reports.append, wake.set)
    runner = LocalRunner(model, cache, on_done=wake.set, mover=None if tiers is None else wrap(tiers.mover))
    return TierRig(Engine(config, policy, tiers and tiers.connector), runner, wake, tiers, reports)


def _fails(tiers: Tiers) -> bool:
    return any(report.failed.get("io") for report in tiers.connector.report())


def host_of(num_blocks: int, block_bytes: int) -> TierSettings:
    settings = tiers_of(offloading_size=f"{num_blocks * slot_stride_bytes(block_bytes)}B")
    assert settings is not None
    return settings


class Conversations:
    """Agents whose every turn continues the last one with what the model said and something new."""

    def __init__(self, count: int, first_tokens: int, seed: int = 1) -> None:
        self._rng = random.Random(seed)
        self.histories = [self._tokens(first_tokens) for _ in range(count)]
        self._number = 0

    def _tokens(self, count: int) -> list[int]:
        return [self._rng.randrange(VOCAB) for _ in range(count)]

    def turn(self, rig: TierRig, agent: int, max_tokens: int = 6) -> int:
        """Returns the request's number."""
        prompt, number = self.histories[agent], self._number
        self._number += 1
        rig.run(request(number, prompt, max_tokens, session_id=f"agent-{agent}"))
        if rig.tiers is not None:
            rig.settle()
        self.histories[agent] = prompt + rig.made[number] + self._tokens(3)
        return number

    def rounds(self, rig: TierRig, count: int) -> list[int]:
        """All agents in turn, `count` times."""
        return [self.turn(rig, agent) for _ in range(count) for agent in range(len(self.histories))]


def request(number: int, prompt: list[int], max_tokens: int = 6, **fields: str) -> Request:
    tokens = pack_tokens(prompt)
    sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0)
    return Request(RequestId(number), tokens, sampling, ROOT, join_keys(extend_keys(ROOT, tokens, BLOCK)), **fields)
