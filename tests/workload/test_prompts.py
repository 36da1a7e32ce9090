"""Prompts made from block ids: equal where the ids are, different where they are not, of the recorded length."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from samovar.base.errors import ConfigError
from samovar.workload.metrics_ceiling import InfiniteCache
from samovar.workload.prompts import TokenRange, Tokens, TreePrompts, seed_of
from samovar.workload.prompts_history import LiveHistory
from samovar.workload.prompts_maker import PromptMaker
from samovar.workload.prompts_text import WORDS, Conversation, Words
from samovar.workload.replay import Launch, Replay, ReplayConfig
from samovar.workload.replay_script import script_of
from samovar.workload.session import SessionTree
from tests.workload.replay_trees import BLOCK, drive, main_stream, subagent, tree, turn

RANGE = TokenRange()


def made(ids: list[int], tokens: int, *, scope: int = 1, marker: int = 2, tail: int = 3, system: int = 0) -> Tokens:
    prompts = TreePrompts(RANGE, scope=scope, marker=marker, block_tokens=BLOCK, system_ids=ids[:system])
    return prompts.prompt(np.array(ids, dtype=np.int64), tokens, tail)


def common(a: Tokens, b: Tokens) -> int:
    size = min(len(a), len(b))
    differing = np.flatnonzero(a[:size] != b[:size])
    return int(differing[0]) if len(differing) else size


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 3 * BLOCK))
def test_two_prompts_agree_exactly_as_far_as_their_ids(shared: int, one: int, other: int, extra: int) -> None:
    head = list(range(shared))
    a = made(head + list(range(100, 100 + one)), (shared + one) * BLOCK + extra, tail=7)
    b = made(head + list(range(200, 200 + other)), (shared + other) * BLOCK + extra, tail=8)
    assert len(a) == (shared + one) * BLOCK + extra
    assert a.dtype == np.int32
    # Unequal blocks may begin with a few equal tokens by chance.
    assert shared * BLOCK <= common(a, b) <= shared * BLOCK + 4


def test_tokens_stay_in_their_range_and_use_it_evenly() -> None:
    tokens = made(list(range(2000)), 2000 * BLOCK)
    assert tokens.min() >= RANGE.low and tokens.max() < RANGE.high
    counts = np.bincount((tokens - RANGE.low) // 2900, minlength=10)
    assert np.all(abs(counts - len(tokens) / 10) < 4 * (len(tokens) / 10) ** 0.5)


def test_the_marker_changes_all_but_the_system_prefix() -> None:
    ids = list(range(10))
    a, b = (made(ids, 10 * BLOCK + 9, marker=marker, system=3) for marker in (2, 5))
    assert 3 * BLOCK <= common(a, b) <= 3 * BLOCK + 4
    assert common(made(ids, 640, scope=1), made(ids, 640, scope=9)) <= 4


def test_a_partial_last_block_with_an_id_is_cut_from_the_whole_one() -> None:
    assert np.array_equal(made([1, 2, 3], 150), made([1, 2, 3], 192)[:150])


def test_seeds_do_not_depend_on_the_process() -> None:
    assert seed_of("a", 1) == seed_of("a", 1) != seed_of("a1")
    assert made([1], 4).tolist() == [6107, 13558, 9610, 28436]


@pytest.mark.parametrize(("low", "high"), [(5, 5), (-1, 9), (9, 3), (0, 2**31 + 1)])
def test_a_token_range_that_cannot_work_is_refused(low: int, high: int) -> None:
    with pytest.raises(ConfigError, match="--token-range"):
        TokenRange(low, high)


SESSION = tree(
    main_stream(
        turn(0, 1, [1, 2, 3], 200, out=70),
        turn(2, 3, [1, 2, 3, 4, 5, 6], 400, out=30),
        turn(4, 5, [1, 2, 7, 8], 256, out=10),
        system_tokens=100,
    ),
    subagent("a", 1, None, turn(3, 4, [1, 2, 3, 9], 256)),
)


def sent(session: SessionTree, maker: PromptMaker, lanes: int = 1, visits: int = 1) -> list[tuple[Launch, Tokens]]:
    rules = ReplayConfig(concurrency=lanes, start_from=0, start_to=0, max_visits=visits)
    replay = Replay([script_of(session)], rules)
    found: list[tuple[Launch, Tokens]] = []

    def answer(launch: Launch) -> float:
        found.append((launch, maker.prompt(launch)))
        maker.answered(launch, np.arange(launch.output_tokens, dtype=np.int32))
        return 1.0

    drive(replay, answer)
    return found


def test_reuse_at_token_level_is_that_of_the_ids() -> None:
    prompts = sent(SESSION, PromptMaker(RANGE, run="r", point="1"))
    seen: set[int] = set()
    cache = InfiniteCache(BLOCK)
    for launch, tokens in prompts:
        ids = launch.call.recorded.blocks.tolist()
        most = (len(tokens) - 1) // BLOCK
        hits = next((at for at, block in enumerate(ids[:most]) if block not in seen), most)
        seen.update(ids[: len(tokens) // BLOCK])
        assert cache.look_up(tokens) == min(hits, len(ids)) * BLOCK


def test_visits_share_the_system_prefix_and_nothing_else_unless_the_marker_is_off() -> None:
    for cache_bust, least, most in ((True, 64, 68), (False, 192, 196)):
        prompts = sent(SESSION, PromptMaker(RANGE, run="r", point="1", cache_bust=cache_bust), visits=2)
        first, again = (tokens for launch, tokens in prompts if launch.call.index == 0)
        assert least <= common(first, again) <= max(most, len(first) if not cache_bust else most)


def test_runs_and_points_do_not_meet() -> None:
    prompts = [sent(SESSION, PromptMaker(RANGE, run=run, point=point))[0][1] for run, point in ("ab", "ac", "db")]
    assert 64 <= common(prompts[0], prompts[1]) <= 68
    assert common(prompts[0], prompts[2]) <= 4


def test_live_history_sends_the_answers_back_and_keeps_lengths_cuts_and_sharing() -> None:
    prompts = sent(SESSION, PromptMaker(RANGE, run="r", point="1", live_history=True))
    tokens = {(launch.call.stream, launch.call.turn): prompt for launch, prompt in prompts}
    first, second, cut, child = tokens[0, 0], tokens[0, 1], tokens[0, 2], tokens[1, 0]
    assert [len(t) for t in (first, second, cut, child)] == [200, 400, 256, 256]
    assert np.array_equal(second[:200], first)
    assert np.array_equal(second[200:270], np.arange(70))
    assert 128 <= common(cut, second) <= 132
    assert 192 <= common(child, second) <= 196


@given(st.lists(st.tuples(st.integers(1, 200), st.integers(0, 90)), min_size=2, max_size=6))
@settings(max_examples=50)
def test_a_live_conversation_that_only_grows_is_all_reused(turns: list[tuple[int, int]]) -> None:
    history = LiveHistory(TreePrompts(RANGE, scope=1, marker=2, block_tokens=BLOCK))
    length, so_far = 0, np.empty(0, dtype=np.int32)
    for grown, answered in turns:
        length += grown
        ids = np.arange(length // BLOCK, dtype=np.int64)
        prompt = history.prompt(0, ids, length, tail=length)
        assert len(prompt) == length
        assert np.array_equal(prompt[: len(so_far)], so_far[:length])
        answer = np.arange(answered, dtype=np.int32)
        history.answered(0, answer)
        so_far = np.concatenate([prompt, answer])


def test_words_are_one_per_unit_and_read_as_text() -> None:
    words = Words()
    assert len(set(WORDS)) == len(WORDS) > 150
    assert words.text([0, 1]) == f" {WORDS[0]} {WORDS[1]}"
    answer = words.add("Hello, wörld.", 5)
    assert len(answer) == 5 and words.text(answer) == "Hello, wörld."
    assert len(words.add("anything", 0)) == 0


def test_messages_begin_with_the_system_and_keep_what_prompts_share() -> None:
    maker = PromptMaker(Words().range, run="r", point="1")
    talks = {}
    for launch, units in sent(SESSION, maker):
        talks[launch.call.stream, launch.call.turn] = maker.messages(launch, units)
    roles = {key: [(role, len(part)) for role, part in parts] for key, parts in talks.items()}
    assert roles[0, 0] == [("system", 64), ("user", 136)]
    assert roles[0, 1] == [("system", 64), ("user", 128), ("assistant", 70), ("user", 138)]
    assert roles[0, 2] == [("system", 64), ("user", 192)]
    assert roles[1, 0] == [("user", 256)]


def test_a_conversation_ends_with_the_user_and_roles_alternate() -> None:
    talk = Conversation(0)
    first = np.arange(100, dtype=np.int32)
    talk.messages(first, 0, BLOCK)
    grown = np.arange(150, dtype=np.int32)
    assert [(role, len(part)) for role, part in talk.messages(grown, 50, BLOCK)] == [("user", 150)]
    more = np.arange(300, dtype=np.int32)
    parts = talk.messages(more, 40, BLOCK)
    assert [(role, len(part)) for role, part in parts] == [("user", 150), ("assistant", 40), ("user", 110)]
    assert np.array_equal(np.concatenate([part for _, part in parts]), more)
