"""Why a prompt missed: every reason from what the index and the session's last turn say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.base.keys import KEY_BYTES
from samovar.core.block_pool import BlockPool
from samovar.core.events import Miss
from samovar.core.prefix_index import COMPUTED, PrefixIndex
from samovar.core.sessions import SessionMemory
from samovar.policy.lru import LRU
from samovar.policy.retention import Leaf


def keys(text: str) -> list[bytes]:
    """One block per letter; a key is its prefix, padded to the size of a key."""
    return [text[: i + 1].encode().rjust(KEY_BYTES, b"_") for i in range(len(text))]


class Expiring:
    name = "expiring"
    sample = 16

    def value(self, leaf: Leaf, now: float) -> float:
        return float("-inf")


def index_with(chain: str, evicted: int = 0, policy: LRU | Expiring | None = None) -> PrefixIndex:
    """An index that holds `chain`, less its last `evicted` blocks, which went at 5 s for request 9."""
    pool = BlockPool(16)
    index = PrefixIndex(pool, policy or LRU())
    blocks = pool.take_many(len(chain))
    for at, key in enumerate(keys(chain)):
        index.insert(key, blocks[at], blocks[at - 1] if at else None, COMPUTED, "")
    index.release(blocks, 1.0, "")
    index.evict(evicted, 5.0, 9)
    return index


def explain(memory: SessionMemory, stream: str, prompt: str, index: PrefixIndex) -> Miss:
    hit = index.match(keys(prompt), 0, len(prompt))
    return memory.explain(stream, keys(prompt), hit, len(prompt), index)


@pytest.mark.parametrize(
    ("turn", "prompt", "held", "expected"),
    [
        (None, "abc", "", Miss("cold", block=0)),
        (None, "abc", "ab", Miss("new", block=2)),
        ("abc", "abc", "abc", Miss("none")),
        ("abc", "abcd", "abc", Miss("new", block=3)),
        ("abc", "abX", "abc", Miss("cut", block=2)),
        ("abc", "XYZ", "abc", Miss("cut", block=0)),
        ("abc", "ab", "a", Miss("evicted", block=1)),
        ("abc", "abcd", "", Miss("evicted", block=0)),
    ],
)
def test_the_reason_of_a_miss(turn: str | None, prompt: str, held: str, expected: Miss) -> None:
    memory = SessionMemory()
    if turn is not None:
        memory.remember("s", keys(turn))
    assert explain(memory, "s", prompt, index_with(held)) == expected


@pytest.mark.parametrize(("policy", "reason"), [(LRU(), "evicted"), (Expiring(), "expired")])
def test_an_eviction_that_is_remembered_says_when_and_for_whom(policy: LRU | Expiring, reason: str) -> None:
    index = index_with("abc", evicted=2, policy=policy)
    for stream in ("", "unknown"):
        assert explain(SessionMemory(), stream, "abcd", index) == Miss(reason, block=1, at_s=5.0, for_request=9)


def test_without_a_session_nothing_is_remembered() -> None:
    memory = SessionMemory()
    memory.remember("", keys("abc"))
    assert explain(memory, "", "abX", index_with("ab")).reason == "new"


def test_the_latest_turn_counts() -> None:
    memory = SessionMemory()
    memory.remember("s", keys("abc"))
    memory.remember("s", keys("xy"))
    assert explain(memory, "s", "xZ", index_with("xy")) == Miss("cut", block=1)
    memory.remember("s", [])
    assert explain(memory, "s", "ab", index_with("a")) == Miss("new", block=1)


@given(turns=st.lists(st.tuples(st.sampled_from("pqrst"), st.integers(0, 6)), max_size=30), room=st.integers(0, 12))
def test_the_least_recently_seen_sessions_are_forgotten(turns: list[tuple[str, int]], room: int) -> None:
    small, generous = SessionMemory(max_bytes=room * KEY_BYTES), SessionMemory()
    for stream, length in turns:
        small.remember(stream, keys("abcdef"[:length]))
        generous.remember(stream, keys("abcdef"[:length]))
    latest, empty = dict(turns), index_with("")
    recency = list(dict.fromkeys(stream for stream, _ in reversed(turns)))
    known = [s for s in recency if small.explain(s, keys("abcdef"), 0, 6, empty).reason != "cold"]
    assert known == recency[: len(known)], "one was forgotten before another that was seen longer ago"
    assert sum(latest[stream] for stream in known) <= room
    assert all(generous.explain(s, keys("abcdef"), 0, 6, empty).reason != "cold" for s in recency)


@given(turn=st.text("ab", max_size=8), prompt=st.text("ab", min_size=1, max_size=8), hit=st.integers(0, 8))
def test_a_cut_is_where_the_turns_part(turn: str, prompt: str, hit: int) -> None:
    memory = SessionMemory()
    memory.remember("s", keys(turn))
    same = 0
    while same < min(len(turn), len(prompt)) and turn[same] == prompt[same]:
        same += 1
    hit = min(hit, same)
    miss = memory.explain("s", keys(prompt), hit, len(prompt), index_with(""))
    if hit == len(prompt):
        assert miss == Miss("none")
    elif same > hit:
        assert miss == Miss("evicted", block=hit)
    elif same < len(turn):
        assert miss == Miss("cut", block=same)
    else:
        assert miss == Miss("new", block=hit)
