"""Which conversation a prompt continues, and why it missed: every reason from what the index and the last turn say."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.base.keys import KEY_BYTES, join_keys
from samovar.core.block_pool import BlockPool
from samovar.core.events import Miss
from samovar.core.misses import explain
from samovar.core.prefix_index import COMPUTED, PrefixIndex
from samovar.core.spawners import MAX_TOOLS, Spawners
from samovar.core.stream import Joined
from samovar.core.streams import MAX_STREAMS_PER_SESSION, MAX_STREAMS_PER_SHARED_SESSION, Streams
from samovar.policy.lru import LRU
from samovar.policy.retention import Leaf
from tests.core.tiers import QuietPolicy


def keys(text: str) -> list[bytes]:
    """One block per letter; a key is its prefix, padded to the size of a key, or a hash of it."""
    found: list[bytes] = []
    chain = sha256()
    for i, letter in enumerate(text):
        chain.update(letter.encode())
        short = text[: i + 1].encode() if i < KEY_BYTES else b""
        found.append(short.rjust(KEY_BYTES, b"_") if 0 < len(short) <= KEY_BYTES else chain.digest()[:KEY_BYTES])
    return found


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

    def begin(self, prompt: str, session: str = "", tenant: str = "", parent: str = "", shared: bool = False) -> Joined:
        likely = self.streams.likely(tenant, session, keys(prompt), shared=shared)
        known = {stream.name for stream in self.streams.latest()}
        joined = self.streams.join(tenant, session, parent, keys(prompt), shared=shared)
        if joined.stream.name in known and likely is not None:
            assert likely is joined.stream or likely.name not in {s.name for s in self.streams.latest()}
        else:
            assert likely is None
        return joined

    def end(self, joined: Joined, turn: str, prompt_blocks: int | None = None) -> int:
        self.now += 1.0
        known = self.streams.ended(
            joined.stream, keys(turn), len(turn) if prompt_blocks is None else prompt_blocks, self.now
        )
        self.streams.check()
        return known

    def turn(self, prompt: str, answer: str = "", *, tool: str = "", **who) -> Joined:
        joined = self.begin(prompt, **who)
        self.end(joined, prompt + answer, len(prompt))
        joined.stream.awaits = (tool,) if tool else ()
        return joined


def orphaned(joined: Joined) -> list[tuple[int, int]]:
    """(position, number) of what was cut off."""
    for orphans in joined.orphans:
        assert orphans.keys, "nothing was cut off, and it is told"
    return [(orphans.first, len(orphans.keys)) for orphans in joined.orphans]


def test_the_turns_of_a_session_are_one_stream() -> None:
    talk = Talk()
    first = talk.turn("ab", "c", session="s")
    second = talk.turn("abcd", "e", session="s")
    assert second.stream is first.stream and second.orphans == ()
    assert second.reference == join_keys(keys("abc"))


HEAD = "".join(chr(0x4E00 + i) for i in range(940))
"""Tools and instructions that everything of a session begins with."""
LONG = "".join(chr(0x8000 + i) for i in range(5060))


def test_a_side_call_of_a_session_is_a_stream_of_its_own() -> None:
    """It has a block in common with a long history, and the history is not over because of it."""
    talk = Talk()
    main = talk.turn("a" + "b" * 20, session="s")
    side = talk.begin("aXYZVW", session="s")
    assert side.stream is not main.stream and side.stream.parent == main.stream.name
    assert side.orphans == ()
    talk.end(side, "aXYZVW")
    assert talk.turn("a" + "b" * 21, session="s").stream is main.stream
    assert talk.turn("aXYZVWU", session="s").stream is side.stream


@pytest.mark.parametrize("num_side_calls", [1, 3])
def test_side_calls_with_the_same_tools_leave_the_conversation_alone(num_side_calls: int) -> None:
    """940 blocks in common, of 970 and of 6,000. The most that one cuts off are the 30 of the one before."""
    talk = Talk()
    main = talk.turn(HEAD + LONG[:100], LONG[100:], session="s")
    for turn in range(1, 4):
        for call in range(num_side_calls):
            side = talk.turn(HEAD + chr(0x100 + turn * 10 + call) * 30, session="s")
            assert side.stream is not main.stream and orphaned(side) in ([], [(940, 30)])
        again = talk.turn(HEAD + LONG + "+" * turn, session="s")
        assert again.stream is main.stream and again.orphans == ()
    assert main.stream.num_blocks == 6003


def test_side_calls_in_a_row_are_no_turns_of_a_compacted_history() -> None:
    """They have one stream, since little of it is cut off each time, and none of them begins with another's prompt."""
    talk = Talk()
    main = talk.turn(HEAD + LONG, session="s")
    one, two = (talk.turn(HEAD + letter * 30, session="s") for letter in "xy")
    assert one.stream is two.stream and orphaned(two) == [(940, 30)]
    assert talk.turn(HEAD + "z" * 31, session="s").stream is two.stream
    again = talk.turn(HEAD + LONG + "+", session="s")
    assert again.stream is main.stream and again.orphans == ()


def test_a_compaction_is_known_by_its_next_turn() -> None:
    """Until then it might be a side call. The conversation keeps its name, its place and its children."""
    talk = Talk()
    main = talk.turn("abcdef", session="s")
    child = talk.turn("xyz", session="child", parent="s")
    compacted = talk.turn("abXY", session="s")
    assert compacted.stream is not main.stream and compacted.orphans == () and compacted.stream.parent == ""
    assert compacted.reference == join_keys(keys("abcdef"))
    grandchild = talk.turn("xyw", session="grandchild", parent="s")
    again = talk.turn("abXYZ", session="s")
    assert again.stream is main.stream and orphaned(again) == [(2, 4)]
    assert again.reference == join_keys(keys("abXY")) and talk.streams.get(compacted.stream.name) is None
    assert talk.streams.of_session("", "s") == [main.stream] and main.stream.num_blocks == 5
    assert {child.stream.parent, grandchild.stream.parent} == {main.stream.name}
    assert talk.turn("abXYZW", session="s").orphans == ()


def test_children_of_what_was_taken_for_a_side_call_become_the_conversations() -> None:
    talk = Talk()
    main = talk.turn("abcdef", session="s")
    compacted = talk.turn("abXY", session="s")
    child = talk.turn("xyz", session="child")
    talk.streams._set_parent(child.stream, compacted.stream.name)
    talk.turn("abXYZ", session="s")
    assert child.stream.parent == main.stream.name
    assert talk.streams.with_descendants([main.stream]) == [main.stream, child.stream]


def test_a_conversation_that_goes_on_was_not_compacted() -> None:
    talk = Talk()
    main = talk.turn("abcdef", session="s")
    side = talk.turn("abXY", session="s")
    talk.turn("abcdefg", session="s")
    again = talk.turn("abXYZ", session="s")
    assert again.stream is side.stream and again.orphans == ()
    assert talk.turn("abcdefgh", session="s").stream is main.stream


def test_a_sub_agent_under_its_parents_name_does_not_replace_the_one_that_waits_for_it() -> None:
    """Nothing is known of the tool, so it may be one that begins sub-agents."""
    talk = Talk()
    main = talk.turn("abcdef", session="s", tool="task")
    child = talk.turn("abXY", session="s")
    assert child.stream.parent == main.stream.name
    for prompt in ("abXYZ", "abXYZW"):
        again = talk.turn(prompt, session="s")
        assert again.stream is child.stream and again.orphans == ()
    assert talk.turn("abcdefg", session="s").stream is main.stream


def test_that_it_waits_may_become_known_later() -> None:
    talk = Talk()
    main = talk.turn("abcdef", session="s")
    child = talk.turn("abXY", session="s")
    main.stream.awaits = ("task",)
    assert talk.turn("abXYZ", session="s").stream is child.stream
    main.stream.awaits = ()
    assert talk.turn("abXYZW", session="s").stream is child.stream, "it had its chance"


def test_which_tools_begin_sub_agents_is_learned() -> None:
    """What waits for one that never did is compacted, when something like it goes on and it does not."""
    talk = Talk()
    main = talk.turn("abcdef", session="s", tool="read")
    main = talk.turn("abcdefg", session="s", tool="task")
    for turn in range(2):
        child = talk.turn(f"ab{turn}Y", session="s")
        assert child.stream.parent == main.stream.name
        assert talk.turn(f"ab{turn}YZ", session="s").stream is child.stream, "a task, whose sub-agent goes on"
        tool = "read" if turn else "task"
        assert talk.turn("abcdefghi"[: 8 + turn], session="s", tool=tool).stream is main.stream
    assert talk.streams.spawners.of("").among(("read", "task")) and talk.streams.spawners.of("").among(("unheard of",))
    assert not talk.streams.spawners.of("").among(("read",))
    compacted = talk.turn("abXY", session="s")
    assert compacted.stream.parent == ""
    again = talk.turn("abXYZ", session="s")
    assert again.stream is main.stream and orphaned(again) == [(2, 7)]
    assert not main.stream.forked, "what took its place is nothing that began during its next call"


def test_a_side_call_now_and_then_makes_no_spawner_of_a_tool() -> None:
    spawners = Spawners()
    for i in range(1000):
        spawners.returned(("shell", f"other {i}", "shell"), forked=i % 4 == 0)
    assert not spawners.among(("shell",)) and spawners.among(("other 996",)) and not spawners.among(("other 999",))
    for _ in range(100):
        spawners.returned(("shell",), forked=True)
    assert spawners.among(("shell",)), "habits change"
    for i in range(MAX_TOOLS):
        spawners.returned((f"new {i}",), forked=False)
    assert spawners.among(("other 999",)), "it is forgotten"


@pytest.mark.parametrize("prompt", ["abcdX", "abcX", "abX"])
def test_an_edited_message_cuts_the_turn_at_once(prompt: str) -> None:
    """However far back, behind the first prompt."""
    talk = Talk()
    first = talk.turn("ab", "c", session="s")
    talk.turn("abcde", "fgh", session="s")
    again = talk.turn(prompt, session="s")
    assert again.stream is first.stream and orphaned(again) == [(len(prompt) - 1, 9 - len(prompt))]


def test_a_reminder_that_is_gone_from_the_next_prompt_is_no_new_conversation() -> None:
    """All but an eighth of the last turn is there, though the first prompt is not."""
    talk = Talk()
    first = talk.turn(HEAD + "r" * 20, "a" * 10, session="s")
    again = talk.turn(HEAD + "q" * 60, session="s")
    assert again.stream is first.stream and orphaned(again) == [(940, 30)]


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
    assert again.stream is first.stream and orphaned(again) == [(2, 2)]


def test_a_parent_is_the_main_stream_of_the_session_named() -> None:
    talk = Talk()
    main = talk.turn("ab", session="main")
    child = talk.turn("xy", session="child", parent="main")
    assert child.stream.parent == main.stream.name
    assert talk.turn("zz", session="orphan", parent="nobody").stream.parent == ""
    assert talk.turn("zz", session="thief", parent="main", tenant="t").stream.parent == ""


def test_conversations_that_share_a_name_are_told_apart_by_their_ends() -> None:
    """As those of all clients with one `prompt_cache_key`."""
    talk = Talk()
    one = talk.turn(HEAD + "a" * 30, session="k", shared=True)
    two = talk.turn(HEAD + "b" * 30, session="k", shared=True)
    assert one.stream is not two.stream and one.stream.parent == two.stream.parent == ""
    for more in range(31, 34):
        for joined, letter in ((one, "a"), (two, "b")):
            again = talk.turn(HEAD + letter * more, session="k", shared=True)
            assert again.stream is joined.stream and again.orphans == ()
    assert len(talk.streams.of_session("", "k")) == 2
    assert talk.turn(HEAD + "a" * 34).stream.session_id == "", "a name is not left out"


def test_conversations_that_share_a_name_are_bounded() -> None:
    talk = Talk()
    for i in range(MAX_STREAMS_PER_SHARED_SESSION + 5):
        talk.turn(f"{i:03}", session="k", shared=True)
    assert len(talk.streams) == MAX_STREAMS_PER_SHARED_SESSION


@pytest.mark.parametrize("part", ["abcde", "abc", "a", ""])
def test_a_request_that_was_stopped_early_leaves_the_turn_before_it(part: str) -> None:
    """Of the new turn no more is there than what both have."""
    talk = Talk()
    first = talk.turn("abc", "def", session="s")
    assert talk.end(talk.begin("abcdefgh", session="s"), part, 8) == len(part)
    assert first.stream.turn == join_keys(keys("abcdef"))
    assert talk.end(talk.begin("abcdefgh", session="s"), "abcdefg", 8) == 6
    assert first.stream.turn == join_keys(keys("abcdefg"))


def test_what_is_retained_is_counted_per_tenant() -> None:
    talk = Talk()
    one, two = talk.turn("abc", session="1").stream, talk.turn("abcd", session="2").stream
    other = talk.turn("abcde", session="1", tenant="t").stream
    for stream, until_s in ((one, 10.0), (two, 20.0), (other, 30.0)):
        talk.streams.retain(stream, until_s)
    assert talk.streams.retained_blocks("", 5.0, besides=None) == 7
    assert talk.streams.retained_blocks("", 5.0, besides=one) == 4
    assert talk.streams.retained_blocks("", 15.0, besides=None) == 4
    assert talk.streams.retained_blocks("t", 15.0, besides=None) == 5
    talk.streams.check()
    talk.streams.retain(two, None)
    assert talk.streams.retained_blocks("", 15.0, besides=None) == 0
    talk.streams.check()


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
        name = talk.turn(prompt, session=session, tool=f"unknown {len(seen)} {talk.now}").stream.name
        seen = [name] + [other for other in seen if other != name]
        known = [other for other in seen if talk.streams.get(other) is not None]
        assert known == seen[: len(known)], "one was forgotten before another that was seen longer ago"
