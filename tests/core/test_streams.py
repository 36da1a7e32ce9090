"""Which conversation a prompt continues, and why it missed: every reason from what the index and the last turn say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.base.keys import KEY_BYTES, join_keys
from samovar.core.block_pool import BlockPool
from samovar.core.events import Miss
from samovar.core.prefix_index import COMPUTED, PrefixIndex
from samovar.core.streams import MAX_STREAMS_PER_SESSION, Joined, Streams, explain
from samovar.policy.lru import LRU
from samovar.policy.retention import Leaf
from tests.core.tiers import QuietPolicy


def keys(text: str) -> list[bytes]:
    """One block per letter; a key is its prefix, padded to the size of a key."""
    return [text[: i + 1].encode().rjust(KEY_BYTES, b"_") for i in range(len(text))]


class Expiring(QuietPolicy):
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


def missed(turn: str, prompt: str, index: PrefixIndex) -> Miss:
    hit = index.match(keys(prompt), 0, len(prompt))
    return explain(join_keys(keys(turn)), keys(prompt), hit, len(prompt), index)


@pytest.mark.parametrize(
    ("turn", "prompt", "held", "expected"),
    [
        ("", "abc", "", Miss("cold", block=0)),
        ("", "abc", "ab", Miss("new", block=2)),
        ("abc", "abc", "abc", Miss("none")),
        ("abc", "abcd", "abc", Miss("new", block=3)),
        ("abc", "abX", "abc", Miss("cut", block=2)),
        ("abc", "XYZ", "abc", Miss("cut", block=0)),
        ("abc", "ab", "a", Miss("evicted", block=1)),
        ("abc", "abcd", "", Miss("evicted", block=0)),
    ],
)
def test_the_reason_of_a_miss(turn: str, prompt: str, held: str, expected: Miss) -> None:
    assert missed(turn, prompt, index_with(held)) == expected


@pytest.mark.parametrize(("policy", "reason"), [(LRU(), "evicted"), (Expiring(), "expired")])
def test_an_eviction_that_is_remembered_says_when_and_for_whom(policy: LRU | Expiring, reason: str) -> None:
    index = index_with("abc", evicted=2, policy=policy)
    assert missed("", "abcd", index) == Miss(reason, block=1, at_s=5.0, for_request=9)


@given(turn=st.text("ab", max_size=8), prompt=st.text("ab", min_size=1, max_size=8), hit=st.integers(0, 8))
def test_a_cut_is_where_the_turns_part(turn: str, prompt: str, hit: int) -> None:
    same = 0
    while same < min(len(turn), len(prompt)) and turn[same] == prompt[same]:
        same += 1
    hit = min(hit, same)
    miss = explain(join_keys(keys(turn)), keys(prompt), hit, len(prompt), index_with(""))
    if hit == len(prompt):
        assert miss == Miss("none")
    elif same > hit:
        assert miss == Miss("evicted", block=hit)
    elif turn and same < len(turn):
        assert miss == Miss("cut", block=same)
    else:
        assert miss == Miss("new" if turn or hit else "cold", block=hit)


# -- joining --------------------------------------------------------------------------------------------------------


class Talk:
    """Streams with a clock of their own."""

    def __init__(self, **limits) -> None:
        self.streams = Streams(**limits)
        self.now = 0.0

    def begin(self, prompt: str, session: str = "", tenant: str = "", parent: str = "") -> Joined:
        return self.streams.join(tenant, session, parent, keys(prompt))

    def end(self, joined: Joined, turn: str, prompt_blocks: int = 0) -> None:
        self.now += 1.0
        self.streams.ended(joined.stream, keys(turn), prompt_blocks, self.now)
        self.streams.check()

    def turn(self, prompt: str, answer: str = "", **who) -> Joined:
        joined = self.begin(prompt, **who)
        self.end(joined, prompt + answer, len(prompt))
        return joined


def test_the_turns_of_a_session_are_one_stream() -> None:
    talk = Talk()
    first = talk.turn("ab", "c", session="s")
    second = talk.turn("abcd", "e", session="s")
    assert second.stream is first.stream and second.cut_at is None
    assert second.reference == join_keys(keys("abc"))


def test_a_compacted_history_cuts_the_turn_before_it() -> None:
    talk = Talk()
    first = talk.turn("abcdef", session="s")
    assert (again := talk.turn("abXY", session="s")).stream is first.stream
    assert again.cut_at == 2


def test_a_side_call_of_a_session_is_a_stream_of_its_own() -> None:
    """It has a block in common with a long history, and the history is not over because of it."""
    talk = Talk()
    main = talk.turn("a" + "b" * 20, session="s")
    side = talk.begin("aXYZVW", session="s")
    assert side.stream is not main.stream and side.stream.parent == main.stream.name
    assert side.cut_at is None
    talk.end(side, "aXYZVW")
    assert talk.turn("a" + "b" * 21, session="s").stream is main.stream
    assert talk.turn("aXYZVWU", session="s").stream is side.stream


def test_a_session_that_begins_anew_is_explained_by_its_last_turn() -> None:
    talk = Talk()
    talk.turn("abc", session="s")
    assert talk.turn("xyz", session="s").reference == join_keys(keys("abc"))


def test_two_requests_of_a_session_at_once_do_not_share_a_stream() -> None:
    talk = Talk()
    talk.turn("ab", session="s")
    one, two = talk.begin("abc", session="s"), talk.begin("abd", session="s")
    assert one.stream is not two.stream
    talk.end(one, "abc")
    talk.end(two, "abd")


def test_without_a_session_the_last_block_tells() -> None:
    talk = Talk()
    first = talk.turn("ab", "cd")
    assert talk.turn("abcdef").stream is first.stream
    other = talk.turn("abX")
    assert other.stream is not first.stream, "it forked from the middle"
    assert talk.turn("abcdefgh").stream is first.stream


def test_another_tenants_stream_is_never_joined() -> None:
    """Keys of tenants differ; were they equal, it would make no difference."""
    talk = Talk()
    first = talk.turn("ab", "cd")
    assert talk.turn("abcde", tenant="other").stream is not first.stream


def test_a_history_that_differs_from_what_was_generated_is_known_by_its_prompt() -> None:
    talk = Talk()
    first = talk.turn("ab", "cd")
    again = talk.turn("abXY")
    assert again.stream is first.stream and again.cut_at == 2


def test_a_parent_is_the_main_stream_of_the_session_named() -> None:
    talk = Talk()
    main = talk.turn("ab", session="main")
    child = talk.turn("xy", session="child", parent="main")
    assert child.stream.parent == main.stream.name
    assert talk.turn("zz", session="orphan", parent="nobody").stream.parent == ""
    assert talk.turn("zz", session="thief", parent="main", tenant="t").stream.parent == ""


def test_a_turn_that_was_never_computed_says_nothing() -> None:
    talk = Talk()
    talk.turn("abc", session="s")
    talk.end(talk.begin("abcd", session="s"), "")
    assert talk.turn("abce", session="s").reference == join_keys(keys("abc"))


def test_side_calls_of_a_session_are_bounded() -> None:
    talk = Talk()
    main = talk.turn("abcdefgh", session="s")
    for i in range(100):
        talk.turn(chr(ord("A") + i % 50) * 3 + str(i), session="s")
    assert len(talk.streams) <= MAX_STREAMS_PER_SESSION
    assert talk.turn("abcdefghi", session="s").stream is main.stream, "the main agent stays"


@given(turns=st.lists(st.tuples(st.sampled_from(["p", "q", ""]), st.text("ab", min_size=1, max_size=6)), max_size=30),
       room=st.integers(0, 3000))  # fmt: skip
def test_streams_are_bounded_and_the_latest_stay(turns: list[tuple[str, str]], room: int) -> None:
    talk = Talk(max_bytes=room)
    seen: list[str] = []
    for session, prompt in turns:
        name = talk.turn(prompt, session=session).stream.name
        seen = [name] + [other for other in seen if other != name]
        known = [other for other in seen if talk.streams.get(other) is not None]
        assert known == seen[: len(known)], "one was forgotten before another that was seen longer ago"
