"""The shadows against caches that look at every block, and the guard's verdicts."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
import pytest

from samovar.policy.guard import Guard, Shadow


class SlowCache:
    """Every block by itself: evicts from the end of the stream that is worth least among the oldest `sample`, its own
    included, or, by age, of the oldest other one."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held: OrderedDict[str, list[int]] = OrderedDict()

    def use(self, stream: str, shared: int, num_blocks: int, worth: dict[str, int] | None, sample: int) -> int:
        had = self.held.pop(stream, [])
        self.held[stream] = list(range(min(num_blocks, self.capacity)))
        while sum(map(len, self.held.values())) > self.capacity:
            names = [name for name, blocks in self.held.items() if blocks]
            if worth is None:
                victim = next(name for name in names if name != stream)
            else:
                victim = min(names[:sample], key=worth.__getitem__)
            self.held[victim].pop()
        return len([block for block in had if block < min(shared, num_blocks)])

    def sizes(self) -> dict[str, int]:
        return {name: len(blocks) for name, blocks in self.held.items() if blocks}


class ShadowMachine(RuleBasedStateMachine):
    @initialize(capacity=st.integers(1, 30), by_worth=st.booleans(), sample=st.integers(1, 4))
    def start(self, capacity: int, by_worth: bool, sample: int) -> None:
        self.shadow, self.slow = Shadow(capacity), SlowCache(capacity)
        self.worth: dict[str, int] | None = dict.fromkeys("abcdefg", 0) if by_worth else None
        self.sample = sample if by_worth else 1

    @rule(stream=st.sampled_from("abcdefg"), num_blocks=st.integers(0, 20), shared=st.integers(0, 20))
    def use(self, stream: str, num_blocks: int, shared: int) -> None:
        found = self.slow.use(stream, shared, num_blocks, self.worth, self.sample)
        order = None if self.worth is None else self.worth.__getitem__
        assert self.shadow.use(stream, shared, num_blocks, order, self.sample) == found

    @rule(stream=st.sampled_from("abcdefg"), more=st.integers(0, 5))
    def grow(self, stream: str, more: int) -> None:
        order = None if self.worth is None else self.worth.__getitem__
        self.shadow.grow(stream, more, order, self.sample)
        had = self.slow.sizes().get(stream, 0)
        if had:
            self.slow.use(stream, 0, had + more, self.worth, self.sample)

    @rule(stream=st.sampled_from("abcdefg"), worth=st.integers(0, 9))
    def revalue(self, stream: str, worth: int) -> None:
        if self.worth is not None:
            self.worth[stream] = worth

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "shadow"):
            self.shadow.check()
            assert dict(self.shadow._held) == self.slow.sizes()


TestShadow = ShadowMachine.TestCase
TestShadow.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def _rounds(guard: Guard, count: int, worth: dict[str, float]) -> None:
    """Three streams of 40 blocks take turns in a cache for two: LRU never hits, keeping two of them does."""
    for turn in range(count):
        guard.turn("abc"[turn % 3], 40, 40, worth.__getitem__)


def test_an_order_that_hits_more_keeps_deciding() -> None:
    guard = Guard(80, sample=8)
    _rounds(guard, 300, {"a": 2.0, "b": 1.0, "c": 0.0})
    assert guard.trusted and guard.ahead == 80.0, "what it gains beyond the capacity is not counted"


def _loses(guard: Guard, count: int) -> None:
    """A stream that returns at once and one-off prompts; the order throws out what returns."""
    for turn in range(count):
        for name in ("back", f"once {turn}"):
            guard.turn(name, 30, 30, lambda name: 0.0 if name == "back" else 1.0)


def test_an_order_that_hits_less_is_relieved_at_once_and_comes_back_when_it_is_the_better_one() -> None:
    guard = Guard(80, sample=8)
    _loses(guard, 2)
    assert guard.trusted and guard.ahead == 0.0, "it has thrown out 10 blocks, and nobody has missed them"
    guard = Guard(80, sample=8)
    _loses(guard, 3)
    assert not guard.trusted, "10 blocks missed: more than the 4 that are 5% of the capacity"
    _loses(guard, 20)
    assert not guard.trusted and guard.ahead == 0.0
    _rounds(guard, 9, {"a": 2.0, "b": 1.0, "c": 0.0, **{f"once {turn}": 0.0 for turn in range(20)}, "back": 0.0})
    guard.check()
    assert guard.trusted


def test_an_order_that_comes_back_is_judged_by_what_lru_has_left_it() -> None:
    """Its own shadow has kept two streams all the time; in the real cache they are not there yet."""
    guard = Guard(80, sample=8)
    worth = {"a": 2.0, "b": 1.0, "c": 0.0}
    guard.trusted = False
    turn = 0
    while not guard.trusted:
        assert guard.ahead == 0.0
        guard.turn("abc"[turn % 3], 40, 40, worth.__getitem__)
        turn += 1
    assert turn == 4, "a is found at its second turn, by the order only"
    assert guard._own._held == guard._lru._held and guard.ahead == 0.0
    assert guard._own._held is not guard._lru._held


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(1, 40)), max_size=120), st.integers(10, 80))
def test_while_it_decides_it_is_never_further_behind_than_the_slack(
    turns: list[tuple[str, int]], capacity: int
) -> None:
    guard = Guard(capacity, sample=8)
    order = {name: float(at) for at, name in enumerate("abcde")}
    for stream, num_blocks in turns:
        guard.turn(stream, num_blocks, num_blocks, order.__getitem__)
        assert -0.05 * capacity <= guard.ahead <= capacity
        assert guard.trusted or guard.ahead <= 0.05 * capacity
        guard.check()


def test_an_unknown_capacity_is_not_guarded() -> None:
    guard = Guard(0, sample=8)
    _loses(guard, 30)
    assert guard.trusted and guard.ahead == 0.0


def test_equal_orders_never_change_places() -> None:
    """The least recently used one first, whatever the order is called."""
    guard = Guard(100, sample=1)
    for turn in range(500):
        guard.turn(str(turn % 7), 30, 30, lambda name: 0.0)
        assert guard.trusted and guard.ahead == 0.0


def test_memory_is_bounded() -> None:
    shadow = Shadow(10_000, max_streams=50)
    for turn in range(500):
        shadow.use(str(turn), 0, 1, None, 1)
        shadow.check()
    assert len(shadow._held) == 50


def test_check_sees_a_wrong_total() -> None:
    shadow = Shadow(10)
    shadow.use("a", 0, 5, None, 1)
    shadow._held["a"] = 4
    with pytest.raises(AssertionError):
        shadow.check()
