"""The whole core under random load: the outputs must be those of a machine without any cache or schedule.

The brute-force model is `expected_output`: a request's tokens depend on its prompt alone. The runner's KV remembers
what each slot was computed from, so a block reused too early, published too early or loaded wrongly changes tokens.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from samovar.core.events import FinishReason
from samovar.core.ports import Reserved, TierMatch
from samovar.core.replay import Recorder, replay
from samovar.policy.hints import HINT_KINDS, Hint
from samovar.policy.lru import LRU
from samovar.policy.retention import Leaf
from tests.core.helpers import Bench, make_request
from tests.core.oracle_runner import expected_output
from tests.core.tiers import KeepingTier, QuietPolicy

BS = 4
EXAMPLES = int(os.environ.get("SAMOVAR_TEST_EXAMPLES", "150"))


class Scramble(QuietPolicy):
    """Nothing in common with recency."""

    name = "scramble"

    def value(self, leaf: Leaf, now: float) -> float:
        return (leaf.block * 7919 + int(now)) % 13 - (float("inf") if leaf.block % 5 == 0 else 0)


class Tier(KeepingTier):
    """Offers what the runner's tier holds; sometimes has to be asked twice; sometimes never answers; gives less than it
    promised at times."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.offered: set[bytes] = set()

    def lookup(self, keys, now: float) -> TierMatch:
        self.calls += 1
        if self.calls % 5 == 0:
            return TierMatch(asked=True, deadline_s=3.0)
        return super().lookup(keys, now)

    def load(self, transfer_id, keys, now: float) -> Reserved:
        return super().load(transfer_id, keys[: len(keys) - (self.calls % 7 == 0) - (self.calls % 11 == 0)], now)

    def offers(self, keys) -> list[int]:
        wanted = [i for i, key in enumerate(keys) if key not in self.offered and key[0] % 3]
        self.offered.update(keys[i] for i in wanted)
        return wanted


class EngineMachine(RuleBasedStateMachine):
    @initialize(
        depth=st.sampled_from([1, 2]),
        num_blocks=st.integers(8, 30),
        budget=st.integers(1, 40),
        seqs=st.integers(1, 6),
        threshold=st.sampled_from([0, 0, 5]),
        interval=st.sampled_from([1, 1, 3]),
        mixed=st.sampled_from([0, 0, 1, 6]),
        policy=st.sampled_from([LRU(), Scramble()]),
        tier=st.booleans(),
        caching=st.sampled_from([True, True, True, False]),
        verify=st.sampled_from([0, 0, 1, 3]),
    )
    def start(self, depth, num_blocks, budget, seqs, threshold, interval, mixed, policy, tier, caching, verify) -> None:
        connector = Tier() if tier else None
        bench = Bench(
            num_blocks=num_blocks, block_tokens=BS, depth=depth, max_num_batched_tokens=budget, max_num_seqs=seqs,
            long_prefill_token_threshold=threshold if threshold < budget and seqs > 1 else 0,
            prefill_schedule_interval=interval if seqs > 1 else 1,
            max_num_mixed_prefill_tokens=mixed, enable_prefix_caching=caching, max_step_failures=3, kv_verify=verify,
        )  # fmt: skip
        self.log: list = []
        self.policy = policy
        bench.engine = Recorder(bench.config, policy, connector, sink=self.log.append)
        if connector is not None:
            connector.contents = bench.runner.tier
        self.bench = bench
        self.prompts: dict[int, tuple[list[int], int]] = {}
        self.aborted: set[int] = set()

    @rule(
        head=st.integers(0, 3), length=st.integers(1, 60), out=st.integers(1, 25), tenant=st.sampled_from("ab"),
        priority=st.sampled_from([0, 0, 0, 1]), copies=st.sampled_from([1, 1, 1, 3]), tail=st.integers(0, 2),
    )  # fmt: skip
    def submit(self, head, length, out, tenant, priority, copies, tail) -> None:
        length = min(length, self.bench.config.max_model_len - 2)
        prompt = [(head + i // 5) % 7 for i in range(length)] + [tail]
        for _ in range(copies):
            id = len(self.prompts)
            count = min(out, self.bench.config.max_model_len - len(prompt))
            bound = ("exact", "at_most", "at_least")[out % 3]
            hints = (Hint(HINT_KINDS[length % 7], 5.0 * out, out, bound),) if length % 3 == 0 else ()
            request = make_request(id, prompt, out, block_tokens=BS, tenant=tenant, priority=priority, hints=hints,
                                   session_id=str(head) if out % 4 else "", session_is_shared=out % 7 == 0)  # fmt: skip
            assert self.bench.submit(request).error is None
            self.prompts[id] = (prompt, count)

    @rule(pick=st.integers(0, 100))
    def continue_a_session(self, pick: int) -> None:
        done = [i for i in self.bench.finished if self.bench.finished[i] is not FinishReason.ERROR]
        if not done:
            return
        id = done[pick % len(done)]
        prompt = (self.prompts[id][0] + self.bench.tokens[id])[: self.bench.config.max_model_len - 3] + [5, 6]
        new = len(self.prompts)
        self.prompts[new] = (prompt, min(6, self.bench.config.max_model_len - len(prompt)))
        session = str(prompt[0]) if pick % 2 else ""
        request = make_request(new, prompt, 6, block_tokens=BS, tenant="a", session_id=session)
        assert self.bench.submit(request).error is None

    @rule(session=st.integers(0, 4), kind=st.sampled_from(HINT_KINDS), seconds=st.sampled_from([0.0, 1.0, 40.0]),
          bound=st.sampled_from(["exact", "at_most"]))  # fmt: skip
    def hint(self, session: int, kind, seconds: float, bound) -> None:
        answers = self.bench.engine.hint("a", str(session), (Hint(kind, seconds, 2, bound),), self.bench.now)
        assert [answer.kind for answer in answers] == [kind]

    @rule(pick=st.integers(0, 100), reason=st.sampled_from(["stop", "tool_calls", "abort"]))
    def outcome(self, pick: int, reason: str) -> None:
        self.bench.engine.outcome(pick, reason, ("shell",) if reason == "tool_calls" else (), self.bench.now)

    @rule(seconds=st.sampled_from([1.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.bench.now += seconds

    @rule()
    def plan(self) -> None:
        self.bench.plan()

    @rule(land=st.booleans())
    def apply(self, land: bool) -> None:
        if self.bench.runner.queue:
            self.bench.apply(land=land)

    @rule(n=st.integers(1, 8), land=st.booleans())
    def steps(self, n: int, land: bool) -> None:
        for _ in range(n):
            self.bench.step(land=land)

    @rule()
    def fail_a_step(self) -> None:
        if self.bench.runner.queue:
            self.bench.apply(fail=True)

    @rule(count=st.integers(1, 4), bad=st.sets(st.integers(0, 5), max_size=2))
    def land(self, count: int, bad: set[int]) -> None:
        self.bench.land(count, tuple(sorted(bad)))

    @rule(pick=st.integers(0, 100), kept=st.integers(0, 5))
    def abort(self, pick: int, kept: int) -> None:
        live = [i for i in self.prompts if i not in self.bench.finished and i not in self.aborted]
        if live:
            id = live[pick % len(live)]
            self.bench.engine.finish(id, kept, self.bench.now)
            self.aborted.add(id)

    @invariant()
    def sound(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.bench.engine.check()
        for plan in self.bench.plans[-2:]:
            assert sum(c.num_tokens for c in plan.chunks) <= self.bench.config.max_num_batched_tokens
        for id, (prompt, count) in self.prompts.items():
            made = self.bench.tokens.get(id, [])
            assert made == expected_output(prompt, len(made)) and len(made) <= count

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.bench.drain()
        for id, (prompt, count) in self.prompts.items():
            if id not in self.aborted and self.bench.finished[id] is not FinishReason.ERROR:
                assert self.bench.tokens[id] == expected_output(prompt, count)
        stats = self.bench.engine.stats()
        assert stats.differing_blocks == 0
        assert stats.num_free_blocks + stats.num_cached_blocks == stats.num_blocks, "a block leaked"
        assert not self.bench.runner.requests or self.bench.engine.plan(self.bench.now) is None
        assert replay(self.bench.engine.header, self.log, self.policy) == len(self.bench.plans)


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking these runs takes minutes and gains little
)
