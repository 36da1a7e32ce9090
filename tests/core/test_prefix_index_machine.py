"""The prefix index against a model that scans everything: who is present, who is evicted, and what a lookup finds."""

from __future__ import annotations

from dataclasses import dataclass, field
import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
import pytest

from samovar.core.block_pool import BlockPool
from samovar.core.prefix_index import COMPUTED, NOT_INDEXED, Eviction, PrefixIndex
from samovar.policy.lru import LRU
from samovar.policy.retention import Leaf
from tests.core.tiers import QuietPolicy

REMEMBERED = 12
TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=5)


def chain_keys(tokens: list[int]) -> list[bytes]:
    """Readable keys: a key is the prefix itself."""
    return [bytes(tokens[: i + 1]) for i in range(len(tokens))]


@dataclass
class Fickle(QuietPolicy):
    """Values out of thin air, with ties and expirations, that change from one eviction to the next."""

    seed: int
    name: str = "fickle"
    sample: int = 16

    def value(self, leaf: Leaf, now: float) -> float:
        mixed = hash((leaf.block, leaf.depth_blocks, leaf.last_used_s, len(leaf.stream), now, self.seed)) % 6
        return mixed if mixed else float("-inf")


@dataclass
class Node:
    block: int
    step: int
    stream: str
    refs: int = 1
    stamp: int = 0
    used_s: float = 0.0
    superseded: bool = False


@dataclass
class Model:
    """A key's parent is the key without its last byte."""

    policy: LRU | Fickle
    nodes: dict[bytes, Node] = field(default_factory=dict)
    evicted: dict[bytes, Eviction] = field(default_factory=dict)
    stamp: int = 0

    def match(self, keys: list[bytes], first: int, limit: int) -> int:
        while first < limit and keys[first] in self.nodes:
            first += 1
        return first

    def unused(self) -> list[bytes]:
        return [key for key, node in self.nodes.items() if not node.refs]

    def leaves(self) -> list[bytes]:
        return [key for key in self.unused() if not any(k[:-1] == key for k in self.nodes)]

    def insert(self, key: bytes, block: int, step: int, stream: str) -> None:
        self.nodes[key] = Node(block, step, stream)
        self.evicted.pop(key, None)

    def release(self, keys: list[bytes], now: float, stream: str) -> None:
        self.stamp += 1
        for node in (self.nodes[key] for key in keys):
            node.refs -= 1
            node.stamp, node.used_s, node.stream, node.superseded = self.stamp, now, stream, False

    def supersede(self, keys: list[bytes], stream: str) -> None:
        self.stamp += 1
        for node in (self.nodes[key] for key in keys if key in self.nodes):
            if not node.refs and node.stream == stream:
                node.stamp, node.superseded = -self.stamp, True

    def evict_many(self, count: int, now: float, request: int | None) -> None:
        went: list[bytes] = []
        while len(went) < count:
            (key, expired), stamp = self.choose(now)
            while True:  # with it, what was let go of together
                self.evicted[key] = Eviction(now, request, expired)
                del self.nodes[key]
                went.append(key)
                key = key[:-1]
                if len(went) == count or key not in self.leaves() or self.nodes[key].stamp != stamp:
                    break
        while len(self.evicted) > REMEMBERED:
            del self.evicted[next(iter(self.evicted))]

    def choose(self, now: float) -> tuple[tuple[bytes, bool], int]:
        oldest = sorted(self.leaves(), key=lambda k: (self.nodes[k].stamp, self.nodes[k].block))
        oldest = oldest[: max(1, self.policy.sample)]
        values = {}
        for key in oldest:
            node = self.nodes[key]
            values[key] = self.policy.value(
                Leaf(node.block, len(key) - 1, node.used_s, node.stream, node.superseded), now
            )
        victim = min(oldest, key=lambda k: values[k])  # the first of equals is the least recently used
        expired = self.policy.sample > 1 and values[victim] == float("-inf")
        return (victim, expired), self.nodes[victim].stamp

    def forget(self, blocks: list[int]) -> set[bytes]:
        roots = [key for key, node in self.nodes.items() if node.block in blocks]
        gone = {key for key in self.nodes if any(key.startswith(root) for root in roots)}
        for key in gone:
            del self.nodes[key]
        return gone


@dataclass
class Table:
    """What a request holds: indexed blocks by key, then blocks of its own. A broken one lost its place in the tree."""

    keys: list[bytes]
    own: list[int]
    broken: list[int] = field(default_factory=list)


class PrefixIndexMachine(RuleBasedStateMachine):
    @initialize(num_blocks=st.integers(2, 40), policy=st.one_of(st.just(LRU()), st.builds(Fickle, st.integers(0, 99))))
    def start(self, num_blocks: int, policy: LRU | Fickle) -> None:
        self.pool = BlockPool(num_blocks)
        self.index = PrefixIndex(self.pool, policy)
        self.index.max_evicted = REMEMBERED
        self.model = Model(policy)
        self.tables: list[Table] = []
        self.now = 0.0
        self.step = 0

    def evict(self, count: int, request: int | None) -> None:
        self.now += 1.0
        before = self.pool.num_free, self.index.num_evicted
        self.model.evict_many(count, self.now, request)
        went = self.index.evict(count, self.now, request)
        assert len(went) == count and not any(self.index.get(key) for key in went if key not in self.model.nodes)
        assert (self.pool.num_free, self.index.num_evicted) == (before[0] + count, before[1] + count)

    def take(self, count: int) -> list[int] | None:
        short = count - self.pool.num_free
        if short > self.index.num_unused:
            return None
        if short > 0:
            self.evict(short, len(self.tables))
        return self.pool.take_many(count)

    def fill(self, table: Table, tokens: list[int], step: int) -> None:
        """As the scheduler does: hold what is there, take blocks for the rest, make them findable."""
        keys, have = chain_keys(tokens), len(table.keys)
        found = self.model.match(keys, have, len(keys))
        hits = self.index.chain(keys[found - 1], found - have) if found > have else []
        self.index.hold(hits)
        for key in keys[have:found]:
            self.model.nodes[key].refs += 1
        table.keys += keys[have:found]
        stream = "s" * (len(tokens) % 3)
        for block, key in zip(self.take(len(keys) - found) or [], keys[found:], strict=False):
            parent = self.index.get(key[:-1]) if len(key) > 1 else None
            self.index.insert(key, block, parent, step, stream)
            self.model.insert(key, block, step, stream)
            table.keys.append(key)

    @rule(pick=st.integers(0, 100), keep=st.integers(0, 5), stream=st.sampled_from(["", "t", "tt", "ttt"]))
    def supersede(self, pick: int, keep: int, stream: str) -> None:
        leaves = self.model.leaves()
        if leaves:
            leaf = sorted(leaves)[pick % len(leaves)]
            keys = [leaf[: i + 1] for i in range(keep, len(leaf))]
            self.index.supersede(keys, stream)
            self.model.supersede(keys, stream)

    @rule(tokens=TOKENS, pending=st.booleans(), own=st.integers(0, 2))
    def begin(self, tokens: list[int], pending: bool, own: int) -> None:
        self.step += pending
        table = Table([], [])
        self.fill(table, tokens, self.step if pending else COMPUTED)
        table.own = self.take(own) or []
        self.tables.append(table)

    @rule(at=st.integers(0, 20), tokens=TOKENS)
    def grow(self, at: int, tokens: list[int]) -> None:
        able = [t for t in self.tables if not t.own and not t.broken]
        if able:
            self.step += 1
            table = able[at % len(able)]
            self.fill(table, [*(table.keys[-1] if table.keys else b""), *tokens], self.step)

    @rule(first=st.integers(0, 2), count=st.integers(10, 25))
    def visit_many(self, first: int, count: int) -> None:
        """Enough leaves that a sampling policy sees only the oldest."""
        for other in range(count):
            self.begin([first, 3 + other], False, 0)
            self.release(len(self.tables) - 1)

    @rule(at=st.integers(0, 20))
    def release(self, at: int) -> None:
        if not self.tables:
            return
        self.now += 1.0
        table = self.tables.pop(at % len(self.tables))
        blocks = [self.model.nodes[key].block for key in table.keys] + table.broken + table.own
        stream = "t" * (at % 4)
        self.index.release(blocks, self.now, stream)
        self.model.release(table.keys, self.now, stream)

    @rule(at=st.integers(0, 20))
    def unhold(self, at: int) -> None:
        if self.tables:
            table = self.tables.pop(at % len(self.tables))
            self.index.unhold([self.model.nodes[key].block for key in table.keys] + table.broken + table.own)
            for key in table.keys:
                self.model.nodes[key].refs -= 1

    @rule()
    def apply(self) -> None:
        """The oldest pending step was applied; forgotten blocks among its own stay forgotten."""
        steps = [node.step for node in self.model.nodes.values() if node.step != COMPUTED]
        if not steps:
            return
        done = [node for node in self.model.nodes.values() if node.step == min(steps)]
        lost = [block for table in self.tables for block in table.broken]
        self.index.computed([node.block for node in done] + lost)
        for node in done:
            node.step = COMPUTED

    @rule(ats=st.lists(st.integers(0, 50), min_size=1, max_size=2))
    def forget(self, ats: list[int]) -> None:
        blocks = list({ats[0] % self.pool.num_blocks, ats[-1] % self.pool.num_blocks})
        nodes = dict(self.model.nodes)
        gone = self.model.forget(blocks)
        assert self.index.forget(blocks) == {nodes[key].block for key in gone}
        for table in self.tables:
            table.broken += [nodes[key].block for key in table.keys if key in gone]
            table.keys = [key for key in table.keys if key not in gone]

    @rule(count=st.integers(0, 6), request=st.one_of(st.none(), st.integers(0, 9)))
    def evict_some(self, count: int, request: int | None) -> None:
        self.evict(min(count, len(self.model.unused())), request)

    @rule()
    def evict_everything(self) -> None:
        self.evict(len(self.model.unused()), None)

    @rule(tokens=TOKENS, first=st.integers(0, 5), limit=st.integers(0, 5))
    def match(self, tokens: list[int], first: int, limit: int) -> None:
        keys = chain_keys(tokens)
        first = min(first, self.model.match(keys, 0, len(keys)))  # everything before `first` is present
        limit = min(limit, len(keys))
        found = self.index.match(keys, first, limit)
        assert found == self.model.match(keys, first, limit)
        if found > first:
            assert self.index.chain(keys[found - 1], found - first) == [self.index.get(k) for k in keys[first:found]]

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "index"):
            return
        nodes = self.model.nodes
        assert {key: self.index.get(key) for key in nodes} == {key: node.block for key, node in nodes.items()}
        assert len(self.index) == len(nodes) and self.index.num_unused == len(self.model.unused())
        assert all(self.index.key_of(node.block) == key for key, node in nodes.items())
        steps = dict.fromkeys(range(self.pool.num_blocks), NOT_INDEXED) | {n.block: n.step for n in nodes.values()}
        assert self.index.pending == list(steps.values())
        assert list(self.index.evicted.items()) == list(self.model.evicted.items()), "who left, in which order"
        held = [nodes[key].block for table in self.tables for key in table.keys]
        held += [block for table in self.tables for block in table.broken + table.own]
        self.index.check()
        self.pool.check(held, self.index.indexed_blocks())

    def teardown(self) -> None:
        if hasattr(self, "index"):
            while self.tables:
                self.release(0)
            self.index.check()
            self.evict(self.index.num_unused, None)
            assert self.pool.num_free == self.pool.num_blocks, "whatever nobody holds can be freed"


TestPrefixIndex = PrefixIndexMachine.TestCase
TestPrefixIndex.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("present", [0, 1, 2, 3, 7, 8, 9, 63, 64, 100])
def test_match_of_long_chains_is_a_linear_walk(present: int) -> None:
    pool = BlockPool(100)
    index = PrefixIndex(pool, LRU())
    keys = [i.to_bytes(2, "big") for i in range(120)]
    blocks = pool.take_many(present)
    for i, block in enumerate(blocks):
        index.insert(keys[i], block, blocks[i - 1] if i else None, COMPUTED, "")
    for first in range(present + 1):
        for limit in (0, 1, present - 1, present, present + 1, 120):
            assert index.match(keys, first, limit) == max(first, min(present, limit))
    index.check()


def test_use_without_eviction_keeps_the_bookkeeping_small_and_the_order_right() -> None:
    pool = BlockPool(50)
    index = PrefixIndex(pool, LRU())
    for block in pool.take_many(50):
        index.insert(bytes([block]), block, None, COMPUTED, "")
        index.release([block], 0.0, "")
    draw = random.Random(1)
    last = dict.fromkeys(range(50), 0)
    for turn in range(1, 4000):
        block = draw.randrange(50)
        index.hold([block])
        index.release([block], float(turn), "")
        last[block] = turn
        assert len(index._heap) <= 2 * 50 + 1025
    index.check()
    never = [block for block in last if not last[block]]
    index.evict(50, 5000.0, None)
    assert [key[0] for key in index.evicted] == never + sorted(set(last) - set(never), key=last.__getitem__)


def test_check_sees_a_leaf_that_eviction_would_miss() -> None:
    pool = BlockPool(2)
    index = PrefixIndex(pool, LRU())
    block = pool.take()
    index.insert(b"a", block, None, COMPUTED, "")
    index.release([block], 0.0, "")
    index.check()
    index._heap.clear()
    with pytest.raises(AssertionError, match="leaf"):
        index.check()


def test_what_is_worth_more_stays() -> None:
    """Three chains of two blocks, let go of at 1, 2 and 3 s: only what LRU values at no more than 2 goes."""
    pool = BlockPool(8)
    index = PrefixIndex(pool, LRUCompared())
    for at, name in enumerate(b"abc"):
        blocks = pool.take_many(2)
        keys = [bytes([name]), bytes([name, name])]
        for i, key in enumerate(keys):
            index.insert(key, blocks[i], blocks[i - 1] if i else None, COMPUTED, "")
        index.release(blocks, float(at + 1), "")
    assert index.evict(6, 9.0, None, worth=2.0) == [b"aa", b"a", b"bb", b"b"]
    assert index.evict(2, 9.0, None, worth=2.0) == []
    index.check()
    assert index.evict(2, 9.0, None) == [b"cc", b"c"]
    index.check()


class LRUCompared(QuietPolicy):
    def value(self, leaf: Leaf, now: float) -> float:
        return leaf.last_used_s


def test_keeping_a_block_in_place_is_no_use_of_it_and_a_use_meanwhile_counts() -> None:
    pool = BlockPool(3)
    index = PrefixIndex(pool, LRU())
    for at, block in enumerate(pool.take_many(3)):
        index.insert(bytes([at]), block, None, COMPUTED, "")
        index.release([block], float(at), "")
    first, second = (index.get(bytes([at])) for at in range(2))
    index.hold([first])
    index.hold([second])
    index.hold([second])
    index.release([second], 5.0, "other")
    index.unhold([second])
    index.unhold([first])
    assert index.leaf(first).last_used_s == 0.0 and index.leaf(second).stream == "other"
    index.evict(3, 9.0, None)
    assert [key[0] for key in index.evicted] == [0, 2, 1]
    index.check()


def test_a_leaf_is_valued_once_per_eviction() -> None:
    """Forty chains of one block, sixteen compared at a time."""
    valued: list[int] = []

    class Counting(QuietPolicy):
        def value(self, leaf: Leaf, now: float) -> float:
            valued.append(leaf.block)
            return -leaf.last_used_s

    pool = BlockPool(40)
    index = PrefixIndex(pool, Counting())
    for at, block in enumerate(pool.take_many(40)):
        index.insert(bytes([at]), block, None, COMPUTED, "")
        index.release([block], float(at), "")
    gone = index.evict(20, 50.0, None)
    assert [key[0] for key in gone] == list(range(15, 35)), "the latest of sixteen each time"
    assert len(valued) == len(set(valued)) == 16 + 19
    index.check()
    index.evict(1, 51.0, None)
    assert len(valued) == 35 + 16, "another time, other values"
