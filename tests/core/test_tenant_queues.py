"""Deficit round robin between tenants: what every call keeps to, and what tenants may rely on over many calls."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
import pytest

from samovar.core.state import RequestState
from samovar.core.tenant_queues import TenantQueues
from tests.core.helpers import make_request

QUANTUM = 64


class Load:
    """Queues with requests of known size; a request leaves its queue inside `take`, as the scheduler has it leave."""

    def __init__(self, quantum: int = QUANTUM) -> None:
        self.queues = TenantQueues(quantum)
        self.left: dict[int, int] = {}
        self.states: dict[int, RequestState] = {}
        self.tenants: dict[int, str] = {}
        self.served: dict[str, int] = {}
        self.blocked: set[int] = set()
        self.arrivals = 0

    def add(self, tenant: str, num_tokens: int, priority: int = 0) -> int:
        id = self.arrivals
        self.arrivals += 1
        request = make_request(id, [1], tenant=tenant, priority=priority)
        self.states[id] = RequestState(request, id, 16, 1 << 20)
        self.left[id] = num_tokens
        self.tenants[id] = tenant
        self.queues.add(self.states[id])
        return id

    def remove(self, id: int) -> None:
        self.queues.remove(self.states.pop(id))
        self.left.pop(id)
        self.blocked.discard(id)

    def step(self, budget: int, chunk: int | None = None) -> list[tuple[int, int]]:
        """One call, checked; returns (request, tokens) of those that took some, in order."""
        offers: list[tuple[int, int]] = []

        def take(state: RequestState, most: int) -> int:
            assert 0 < most <= budget - sum(n for _, n in offers), "more was offered than is left"
            assert state.id in self.left, "a request that is gone was offered room"
            taken = 0 if state.id in self.blocked else min(most, self.left[state.id], chunk or most)
            offers.append((state.id, taken))
            self.served[self.tenants[state.id]] = self.served.get(self.tenants[state.id], 0) + taken
            self.left[state.id] -= taken
            if not self.left[state.id]:
                self.remove(state.id)
            return taken

        rest = self.queues.serve(budget, take)
        assert rest == budget - sum(n for _, n in offers) >= 0
        assert len({id for id, _ in offers}) == len(offers), "a request was offered room twice"
        self.queues.check()
        assert {state.id for state in self.queues} == self.left.keys() and len(self.queues) == len(self.left)
        return [(id, taken) for id, taken in offers if taken]


class TenantQueuesMachine(RuleBasedStateMachine):
    """Tenants come, go and stop at random moments; `Load.step` checks every call."""

    @initialize(quantum=st.sampled_from([1, 16, 64]))
    def start(self, quantum: int) -> None:
        self.load = Load(quantum)
        self.quantum = quantum

    @rule(tenant=st.sampled_from("abcd"), size=st.integers(1, 200), priority=st.sampled_from([0, 0, 1]))
    def arrive(self, tenant: str, size: int, priority: int) -> None:
        self.load.add(tenant, size, priority)

    @rule(at=st.integers(0, 30))
    def vanish(self, at: int) -> None:
        if self.load.left:
            self.load.remove(list(self.load.left)[at % len(self.load.left)])

    @rule(at=st.integers(0, 30), blocked=st.booleans())
    def block(self, at: int, blocked: bool) -> None:
        if self.load.left:
            id = list(self.load.left)[at % len(self.load.left)]
            (self.load.blocked.add if blocked else self.load.blocked.discard)(id)

    @rule(budget=st.integers(1, 64), chunk=st.sampled_from([None, None, 5]))
    def serve(self, budget: int, chunk: int | None) -> None:
        ready = [id for id in self.load.left if id not in self.load.blocked]
        taken = self.load.step(min(budget, self.quantum), chunk)
        assert taken or not ready, "somebody could run and nobody did"

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "load"):
            self.load.queues.check()

    def teardown(self) -> None:
        if hasattr(self, "load"):
            self.load.blocked.clear()
            for _ in range(sum(self.load.left.values())):
                self.load.step(self.quantum)
            assert not self.load.left, "every request is served in the end"


TestTenantQueues = TenantQueuesMachine.TestCase
TestTenantQueues.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(
    budgets=st.lists(st.integers(QUANTUM // 2, QUANTUM), min_size=10, max_size=60),
    sizes=st.lists(st.integers(1, 500), min_size=2, max_size=2),
    chunk=st.sampled_from([None, 7, 33]),
)
@settings(max_examples=100, deadline=None)
def test_backlogged_tenants_get_the_same(budgets: list[int], sizes: list[int], chunk: int | None) -> None:
    load = Load()
    for budget in budgets:
        for tenant, size in zip("xy", sizes, strict=True):
            mine = [load.left[id] for id in load.left if load.tenants[id] == tenant]
            able = sum(min(left, chunk or left) for left in mine)  # what it could take in one step
            for _ in range(-(-(3 * QUANTUM - able) // min(size, chunk or size))):
                load.add(tenant, size)
        load.step(budget, chunk)
        apart = abs(load.served.get("x", 0) - load.served.get("y", 0))
        assert apart <= 2 * QUANTUM, "a quantum, and the chunk that a turn may be ahead by"


@given(
    arrivals=st.lists(st.tuples(st.integers(-2, 2), st.integers(1, 100)), min_size=1, max_size=12),
    budget=st.integers(1, QUANTUM),
)
@settings(max_examples=100, deadline=None)
def test_one_tenant_is_served_in_plain_order(arrivals: list[tuple[int, int]], budget: int) -> None:
    load = Load()
    for priority, size in arrivals:
        load.add("x", size, priority)
    order = sorted(range(len(arrivals)), key=lambda id: (arrivals[id][0], id))
    sizes = [arrivals[id][1] for id in order]
    served: list[int] = []
    while load.left:
        taken = load.step(budget)
        served += [id for id, n in taken for _ in range(n)]
        assert len(served) == sum(sizes) or sum(n for _, n in taken) == budget
    assert served == [id for id, size in zip(order, sizes, strict=True) for _ in range(size)]


@pytest.mark.parametrize("before", [0, 1, 2, 5])
def test_a_flood_of_one_tenant_delays_another_by_one_step(before: int) -> None:
    load = Load(2048)
    for _ in range(50):
        load.add("x", 100_000)
    for _ in range(before):
        load.step(2048)
    mine = load.add("y", 1000)
    load.step(2048)
    load.step(2048)
    assert mine not in load.left and load.served["y"] == 1000


def test_a_turn_that_the_budget_cut_short_goes_on_in_the_next_step() -> None:
    load = Load(100)
    load.add("x", 1000)
    load.add("y", 1000)
    turns = [load.step(60) for _ in range(20)]
    assert turns[0] == [(0, 60)] and turns[1][0][0] == 0, "40 of x's quantum are left"
    assert load.served["x"] + load.served["y"] == 1200
    assert abs(load.served["x"] - load.served["y"]) <= 100


def test_a_turn_that_comes_round_again_goes_to_requests_not_asked_yet() -> None:
    load = Load(100)
    first, second = load.add("x", 1000), load.add("x", 1000)
    other = load.add("y", 5)
    assert load.step(60) == [(first, 60)]
    taken = load.step(100)
    assert sum(tokens for _, tokens in taken) == 100 and {id for id, _ in taken} <= {first, second, other}


def test_a_preempted_request_goes_ahead_of_its_equals() -> None:
    load = Load()
    first, second, urgent = load.add("x", 10), load.add("x", 10), load.add("x", 10, -1)
    state = load.states[second]
    load.queues.remove(state)
    state.preempted = True
    load.queues.add(state)
    assert [id for id, _ in load.step(30)] == [urgent, second, first]


@pytest.mark.parametrize("vanishing", ["x", "y", "z"])
def test_a_tenant_that_vanishes_in_its_turn_ends_nobody_elses(vanishing: str) -> None:
    load = Load()
    requests = {tenant: load.add(tenant, 1000) for tenant in "xyz"}
    for _ in range(4):
        load.step(QUANTUM // 2)
    load.remove(requests[vanishing])
    before = dict(load.served)
    for _ in range(4):
        load.step(QUANTUM)
    gained = {tenant: load.served[tenant] - before.get(tenant, 0) for tenant in "xyz" if tenant != vanishing}
    assert sum(gained.values()) == 4 * QUANTUM and min(gained.values()) >= QUANTUM
