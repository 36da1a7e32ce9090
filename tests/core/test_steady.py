"""Rounds taken at once leave the core as the same rounds one by one: the same plans, figures and state."""

from __future__ import annotations

from collections import deque
import random

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.core.config import EngineConfig
from samovar.core.engine import Engine
from samovar.core.plan import Gate, StepPlan, StepResult
from samovar.core.ports import Connector
from samovar.core.replay import Recorder
from samovar.policy.lru import LRU
from samovar.policy.retention import RetentionPolicy
from tests.core.helpers import make_request
from tests.core.tiers import KeepingTier

BT = 8


class Twin:
    """An engine driven with results known beforehand: request i gives the next of its own counts of tokens. Equal
    prompts have equal answers, so equal blocks come to be side by side."""

    def __init__(
        self,
        config: EngineConfig,
        counts: dict[int, list[int]],
        policy: RetentionPolicy | None = None,
        connector: Connector | None = None,
    ) -> None:
        self.prompts: dict[int, int] = {}
        self.calls: list = []
        self.engine = Recorder(config, policy or LRU(), connector, sink=self.calls.append)
        self.config = config
        self.counts = {number: deque(own) for number, own in counts.items()}
        self.plans: deque[StepPlan] = deque()
        self.outputs: list = []
        self.now = 0.0

    def submit(self, number: int, prompt: list[int], output: int, tenant: str = "") -> None:
        self.prompts[number] = len(prompt)
        request = make_request(number, prompt, output, block_tokens=self.config.block_tokens, tenant=tenant)
        assert self.engine.submit(request, self.now).error is None

    def tokens(self, number: int, width: int) -> tuple[int, ...]:
        own = self.counts[number]
        own.rotate(-1)
        return (5,) * min(width, own[-1])

    def plan(self, gate: Gate | None) -> bool:
        plan = self.engine.plan(self.now, gate)
        if plan is not None:
            self.plans.append(plan)
        return plan is not None

    def fill(self, gate: Gate | None) -> None:
        while len(self.plans) < self.config.depth and self.plan(gate):
            pass

    def apply(self) -> None:
        plan = self.plans.popleft()
        width = 1 + self.config.num_speculative_tokens
        tokens = tuple(
            self.tokens(c.request_id, width if c.start >= self.prompts[c.request_id] else 1) if c.samples else ()
            for c in plan.chunks
        )
        self.outputs += self.engine.apply(plan.step, StepResult(plan.step, tokens), self.now)

    def round(self, gate: Gate | None) -> None:
        self.now += 1.0
        self.apply()
        self.plan(gate)

    def leap(self, rounds: int) -> None:
        self.now += rounds
        width = 1 + self.config.num_speculative_tokens
        ids = [chunk.request_id for chunk in self.plans[0].chunks]
        tokens: dict[int, tuple[int, ...]] = {number: () for number in ids}
        for _ in range(rounds):
            for number in ids:
                tokens[number] += self.tokens(number, width)
        new = self.engine.advance(rounds, [tokens[number] for number in ids], self.now)
        self.plans = deque([*self.plans, *new][-self.config.depth :])


PROMPT = 9


def state_of(engine: Recorder) -> object:
    """Everything that a later answer can depend on, but for the times plans were made, which decodes do not use."""
    board = engine._engine._board
    cadence, queues = engine._engine._scheduler._cadence, board.queues
    requests = [
        (s.id, s.status, bytes(s.data), s.num_tokens, s.num_output, s.num_computed, s.num_applied, s.num_inflight,
         s.num_indexed, s.num_sent_blocks, s.last_sampled_in, s.blocks, s.keys, s.holding.last_step, s.failures)
        for s in board.requests.values()
    ]  # fmt: skip
    in_flight = [(r.step, r.chunks, [s.id for s in r.states], r.incarnations, r.pending) for r in board.inflight]
    index = board.kv.index
    return (
        requests, in_flight, list(board.decoding), board.counters, board.next_step, board.kv.pool.refs,
        index._blocks, index._stamps, index.pending, engine.stats(), (cadence._saturated, cadence._since_prefill),
        [s.id for s in queues], queues._deficits, queues._turn,
    )  # fmt: skip


def twist(twins: list[Twin], rng: random.Random) -> None:
    """States of cadence and queues that seldom come up beside steady rounds."""
    saturated, debts = rng.random() < 0.05, [rng.randint(-80, 40) for _ in range(3)]
    for twin in twins:
        board, cadence = twin.engine._engine._board, twin.engine._engine._scheduler._cadence
        cadence._saturated = cadence._saturated or saturated
        for tenant, debt in zip(board.queues._deficits, debts, strict=False):
            board.queues._deficits[tenant] = debt


@st.composite
def cases(draw: st.DrawFn) -> tuple[EngineConfig, list[tuple[list[int], int, str]], dict[int, list[int]]]:
    """A short prompt with a long answer, and others beside it; in large blocks little happens for long."""
    drafts = draw(st.sampled_from([0, 0, 1, 3]))
    tokens = draw(st.sampled_from([BT, 4 * BT]))
    config = EngineConfig(
        num_blocks=draw(st.sampled_from([24, 200])) * BT // tokens, block_tokens=tokens, max_num_seqs=5,
        depth=1 if drafts else draw(st.integers(1, 2)), max_num_batched_tokens=draw(st.sampled_from([40, 80])),
        max_model_len=160, num_speculative_tokens=drafts, prefill_schedule_interval=draw(st.sampled_from([1, 3, 9, 9])),
        long_prefill_token_threshold=draw(st.sampled_from([0, 12, 33])),
        enable_prefix_caching=draw(st.sampled_from([True, True, False])),
    )  # fmt: skip
    prompts = st.sampled_from([[3] * PROMPT, [4] * PROMPT, [5] * 100, [5] * 50 + [6] * 50, [7] * 110])
    other = st.tuples(prompts, st.integers(1, 40), st.sampled_from(["", "a", "b"]))
    requests = [([3] * PROMPT, draw(st.integers(1, 140)), ""), *draw(st.lists(other, max_size=4))]
    counts = {n: draw(st.lists(st.integers(1, 1 + drafts), min_size=1, max_size=5)) for n in range(len(requests))}
    return config, requests, counts


@settings(max_examples=60, deadline=None)
@given(case=cases(), seed=st.integers(0, 10**6), lone=st.booleans(), aborts=st.booleans())
def test_rounds_at_once_are_rounds_one_by_one(case, seed: int, lone: bool, aborts: bool) -> None:
    """Requests come while others run, one may go; the engine is alone, or a group's gates are mostly closed."""
    config, requests, counts = case
    twins = stepping, leaping = [Twin(config, counts) for _ in range(2)]
    rng = random.Random(seed)
    comes = {number: rng.randrange(30) if number else 0 for number in range(len(requests))}
    goes = (rng.randrange(40), rng.randrange(4)) if aborts else (-1, 0)

    def gate(closed: float = 0.85) -> Gate | None:
        return None if lone else Gate(1, rng.random() > closed)

    for at in range(400):
        for number, request in enumerate(requests):
            for twin in twins if comes[number] == at else ():
                twin.submit(number, *request)
        for twin in twins if goes[0] == at else ():
            twin.engine.finish(goes[1], 5, twin.now)
        now = gate()
        for twin in twins:
            twin.fill(now)
        if not leaping.plans:
            continue
        closed = rng.randrange(10)
        twist(twins, rng)
        rounds = leaping.engine.steady_rounds(None if lone else closed)
        if not rounds:
            for twin in twins:
                twin.round(now)
            continue
        rounds = rng.randint(1, rounds)
        seen = len(stepping.outputs)
        for done in range(rounds):
            stepping.round(gate(1.0 if done < closed else 0.5))
        leaping.leap(rounds)
        assert all(output.finish is None and output.token_ids for output in stepping.outputs[seen:])
        assert list(stepping.plans) == list(leaping.plans)
        assert state_of(stepping.engine) == state_of(leaping.engine)
        leaping.engine.check()
    assert not any(twin.engine.has_work for twin in twins), "the requests do not end"
    assert state_of(stepping.engine) == state_of(leaping.engine)


@pytest.mark.parametrize("depth, expected", [(1, (1, 3, 6)), (2, (0, 1, 4))])
def test_how_many_rounds_there_are(depth: int, expected: tuple[int, ...]) -> None:
    """9 prompt tokens in blocks of 8, and one more known (two at depth 2). The last token's round is none; nor is the
    one that fills the second block or, two deep, plans beyond it."""
    for output, rounds in zip((3, 5, 100), expected, strict=True):
        twin = Twin(EngineConfig(num_blocks=24, block_tokens=BT, max_model_len=120, depth=depth), {0: [1]})
        twin.submit(0, [3] * PROMPT, output)
        assert twin.engine.steady_rounds() == 0, "nothing is in flight"
        twin.fill(None)
        assert twin.engine.steady_rounds() == 0, "its prompt is in flight"
        for _ in range(depth):
            twin.round(None)
        assert twin.engine.steady_rounds() == rounds
        if rounds:
            twin.leap(rounds)
            assert twin.engine.steady_rounds() == 0
        twin.submit(1, [4] * PROMPT, 1)
        assert twin.engine.steady_rounds() == 0, "somebody waits"


def test_what_the_runner_is_still_to_be_told_comes_first() -> None:
    """A prompt that was begun is put off while gates are closed. It goes away: the next plan says so, like no other."""
    twin = Twin(EngineConfig(num_blocks=24, block_tokens=BT, max_model_len=120, depth=1, max_num_batched_tokens=24,
                             prefill_schedule_interval=9), {0: [1], 1: [1]})  # fmt: skip
    twin.submit(0, [3] * PROMPT, 50)
    twin.fill(None)
    twin.submit(1, [4] * 50, 5)
    twin.round(Gate(0, True))
    twin.round(Gate(1, False))
    assert [len(plan.chunks) for plan in twin.plans] == [1]
    assert [twin.engine.steady_rounds(closed) for closed in range(4)] == [0, 1, 2, 3]
    twin.engine.finish(1, 0, twin.now)
    assert twin.engine.steady_rounds(3) == 0
    twin.round(Gate(2, False))
    assert twin.plans[0].released == (1,) and twin.engine.steady_rounds() > 0


def test_rounds_end_when_the_tiers_want_to_be_asked() -> None:
    tier = KeepingTier()
    engine = Engine(EngineConfig(num_blocks=24, block_tokens=BT, max_model_len=120, depth=1), LRU(), tier)
    assert engine.quiet_until == float("inf")
    engine.submit(make_request(0, [3] * PROMPT, 50, block_tokens=BT), 0.0)
    plan = engine.plan(0.0)
    assert plan is not None
    engine.apply(plan.step, StepResult(plan.step, ((0,),)), 1.0)
    stored = engine.plan(1.0)
    assert stored is not None and len(stored.stores) == 1
    assert engine.steady_rounds() == 6, "though its first block is on its way to the tier"
    tier.wake_at = 3.0
    assert engine.quiet_until == 3.0


def test_more_rounds_than_are_steady_and_tokens_that_do_not_fit_are_refused() -> None:
    twin = Twin(EngineConfig(num_blocks=24, block_tokens=BT, max_model_len=120, depth=1), {0: [1]})
    twin.submit(0, [3] * PROMPT, 50)
    twin.fill(None)
    twin.round(None)
    rounds = twin.engine.steady_rounds()
    assert rounds > 1
    with pytest.raises(AssertionError, match="are steady"):
        twin.engine.advance(rounds + 1, [(7,) * (rounds + 1)], 2.0)
    with pytest.raises(AssertionError, match="1 tokens in 2 rounds"):
        twin.engine.advance(2, [(7,)], 2.0)
