"""Keys of prompts that are never written out against keys of the tokens that the benchmark would send."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np

from samovar.base.keys import KEY_BYTES, extend_keys, root_key, split_keys
from samovar.sim.prompt_keys import PromptKeys
from samovar.workload.prompts import TokenRange
from samovar.workload.prompts_maker import PromptMaker
from samovar.workload.replay import Launch
from samovar.workload.replay_script import script_of
from samovar.workload.session import SessionTree, Stream, Turn

BLOCK = 8
ROOT = root_key(b"real")


@st.composite
def trees(draw: st.DrawFn) -> SessionTree:
    """Chained ids: every prompt is the beginning of one seen before and new blocks, some with a partial last block."""
    fresh = iter(range(1, 10_000))
    chains: list[list[int]] = [[]]

    def one(at: int) -> Turn:
        base = draw(st.sampled_from(chains))
        ids = base[: draw(st.integers(0, len(base)))] + [next(fresh) for _ in range(draw(st.integers(0, 5)))]
        chains.append(ids)
        tokens = max(0, len(ids) * BLOCK + draw(st.integers(-BLOCK + 1, 2 * BLOCK)))
        return Turn(at, at + 0.5, tokens, 1, np.array(ids, dtype=np.int64))

    streams = [Stream("main", "main", tuple(one(n) for n in range(draw(st.integers(1, 5)))), system_tokens=2 * BLOCK)]
    if draw(st.booleans()):
        agent = tuple(one(n + 1) for n in range(draw(st.integers(1, 3))))
        streams.append(Stream("s", "subagent", agent, parent="main", spawn_turn=0))
    return SessionTree("t", BLOCK, tuple(streams), draw(st.sampled_from(["t", "shared"])))


def launches(tree: SessionTree, visits: int) -> list[Launch]:
    script = script_of(tree)
    return [
        Launch(visit * 100 + call.index, 0, visit, visit, script, call, "profile", 0.0, 1)
        for visit in range(visits)
        for call in script.calls
    ]


@settings(max_examples=60, deadline=None)
@given(first=trees(), second=trees(), visits=st.integers(1, 2), own=st.integers(1, 3 * BLOCK))
def test_blocks_are_equal_where_the_benchmarks_tokens_are(first, second, visits: int, own: int) -> None:
    maker, keys = PromptMaker(TokenRange(), run="r", point="1"), PromptKeys(own, 1)
    name_of: dict[bytes, bytes] = {}
    for launch in launches(first, visits) + [
        Launch(launch.id + 1000, 1, launch.visit, launch.repeat, launch.script, launch.call, "profile", 0.0, 1)
        for launch in launches(second, 1)
    ]:
        made = split_keys(keys.keys(launch))
        real = extend_keys(ROOT, maker.prompt(launch).tobytes(), own)
        assert len(made) == len(real)
        for mine, theirs in zip(made, real, strict=True):
            assert name_of.setdefault(theirs, mine) == mine, "equal tokens, other keys"
    assert len(set(name_of.values())) == len(name_of), "other tokens, equal keys"


def test_a_prompt_that_goes_on_costs_its_new_blocks_only(monkeypatch) -> None:
    hashed = []
    real = PromptKeys._hash
    monkeypatch.setattr(
        PromptKeys,
        "_hash",
        lambda self, known, *rest: hashed.append(len(known) // KEY_BYTES) or real(self, known, *rest),
    )
    turns = tuple(Turn(n, n + 0.5, (20 + n) * BLOCK, 1, np.arange(1, 21 + n, dtype=np.int64)) for n in range(4))
    keys = PromptKeys(2 * BLOCK, 1)
    for launch in launches(SessionTree("t", BLOCK, (Stream("main", "main", turns),), "t"), 1):
        assert len(keys.keys(launch)) == (20 + launch.call.turn) // 2 * KEY_BYTES
    assert hashed == [0, 10, 10, 11]


def test_what_is_remembered_ends_with_the_tree() -> None:
    main = Stream("main", "main", tuple(Turn(n, n + 0.5, 40, 1, np.arange(1, 6)) for n in range(2)))
    agent = Stream("s", "subagent", main.turns, parent="main", spawn_turn=0)
    keys = PromptKeys(BLOCK, 1)
    for launch in launches(SessionTree("t", BLOCK, (main, agent), "t"), 1):
        keys.keys(launch)
    assert len(keys._last) == 2
    lone = script_of(SessionTree("u", BLOCK, (main,), "u"))
    keys.keys(Launch(9, 0, 1, 0, lone, lone.calls[0], "profile", 0.0, 1))
    assert len(keys._last) == 1
