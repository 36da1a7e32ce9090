"""`samovar policy eval`: replays against independent models, what policies are told when, and the command itself."""

from __future__ import annotations

from dataclasses import dataclass, field
import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from typer.testing import CliRunner

from samovar.base.errors import ConfigError, SamovarError, TraceError
from samovar.bench.policy_eval import EvalConfig, EvalResult, Point, evaluate, verdict
from samovar.bench.policy_eval_hints import HINT_MODES, NOISE, hint_giver
from samovar.bench.policy_eval_replay import Cache, replay, replay_belady
from samovar.bench.policy_eval_trace import AskedSessions, ask, begin, chained, next_uses
from samovar.cli.policy import app
from samovar.policy.hints import Hint, HintAnswer
from samovar.policy.lru import LRU
from samovar.policy.retention import TurnEnd, TurnStart
from samovar.workload.curves import CapacityCurves
from samovar.workload.load import make_load
from samovar.workload.session import SessionTree, Stream
from samovar.workload.synth import synthesise
from samovar.workload.synth_config import SynthConfig
from tests.workload.brute_force import Access, belady_hits, lru_hits
from tests.workload.made_up import BLOCK, loads, session_of, turn

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "traces"
SMALL = SynthConfig(
    sessions=10, seed=3, turns_median=15, turns_p90=40, input_median=6000, input_p90=12_000, tool_tokens=1000,
    system_tokens=500, block_tokens=64,
)  # fmt: skip


@pytest.fixture(scope="module")
def made() -> AskedSessions:
    return ask(synthesise(SMALL))


def _whole_blocks(accesses: list[Access]) -> list[Access]:
    """The same prompts, each with a last token behind its last block: nothing partial, and all blocks may be hit."""
    return [
        Access(access.start_s, access.end_s, access.ids, len(access.ids) * BLOCK + 1)
        for access in accesses
        if len(access.ids)
    ]


@given(loads(), st.integers(1, 12))
@settings(max_examples=150, deadline=None)
def test_lru_and_belady_hit_what_models_hit_that_look_at_every_block(accesses: list[Access], capacity: int) -> None:
    accesses = _whole_blocks(accesses)
    if not accesses:
        return
    asked = ask([session_of(accesses)])
    events = begin(asked, 1, 60.0)
    none = hint_giver("none", 1)
    assert replay(asked, events, capacity, LRU(), none).hit_tokens == lru_hits(accesses, capacity)
    belady = replay_belady(asked, events, capacity, next_uses(asked, events))
    assert belady.hit_tokens == belady_hits(accesses, capacity)


def test_made_sessions_hit_what_stack_distances_say(made: AskedSessions) -> None:
    """The capacity curves of `samovar trace stats` come from reuse distances, without a cache."""
    load = make_load(synthesise(SMALL))
    events = begin(made, 2, 60.0)
    first: dict[int, float] = {}
    for event in events:
        request = made.requests[event.number]
        first.setdefault(request.session, event.time_s - request.start_s)
    starts = np.array([first[number] for number in range(made.num_sessions)])
    starts += [min(c.turn.start_s for c in session.calls()) for session in synthesise(SMALL)]
    curves = CapacityCurves(load, starts)
    for share in (0.1, 0.3, 0.6):
        blocks = round(share * made.num_blocks)
        tokens = [blocks * SMALL.block_tokens]
        lru = replay(made, events, blocks, LRU(), hint_giver("none", 2))
        belady = replay_belady(made, events, blocks, next_uses(made, events))
        assert lru.hit_tokens == pytest.approx(int(curves.lru(tokens)[0]), rel=0.002)
        assert belady.hit_tokens == pytest.approx(int(curves.optimal(tokens)[0]), rel=0.002)


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=8))
@settings(max_examples=300, deadline=None)
def test_equal_numbers_mean_equal_prefixes_whatever_ids_a_trace_has(prompts: list[list[int]]) -> None:
    nodes, count = chained([np.array(ids, dtype=np.int64) for ids in prompts])
    named = {
        (tuple(ids[: depth + 1]), node)
        for ids, found in zip(prompts, nodes, strict=True)
        for depth, node in enumerate(found.tolist())
    }
    assert len({prefix for prefix, _ in named}) == len(named) == len({node for _, node in named})
    assert all(0 <= node < count for _, node in named)


def test_the_replay_keeps_the_index_sound_and_within_its_capacity(made: AskedSessions) -> None:
    cache = Cache(made, 150, LRU(sample=4))
    for at, event in enumerate(begin(made, 1, 60.0)):
        if not event.begins:
            continue
        request = made.requests[event.number]
        blocks = cache.hold(request, cache.find(request))
        assert len(blocks) == len(request.nodes)
        cache.index.release(blocks, event.time_s, request.stream)
        cache.shrink(event.time_s)
        assert cache.index.num_unused == len(cache.index) <= 150
        if at % 50 == 0:
            cache.index.check()


# -- what is told, and when --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Listening(LRU):
    """Writes down what it is told."""

    heard: list[tuple[object, ...]] = field(default_factory=list)

    def turn_started(self, turn: TurnStart, now: float) -> None:
        self.heard.append(("start", turn.stream, turn.parent, turn.num_blocks, turn.num_hit_blocks, now))

    def turn_ended(self, turn: TurnEnd, now: float) -> None:
        self.heard.append(("end", turn.stream, turn.num_blocks, turn.reason, now))

    def hinted(self, stream: str, hint: Hint, now: float) -> HintAnswer:
        self.heard.append(("hint", stream, hint, now))
        return HintAnswer(hint.kind, "applied")


def _two_streams() -> AskedSessions:
    main = (turn(0.0, 4.0, [1, 2], tokens=9), turn(14.0, 15.0, [1, 2, 3], tokens=13))
    sub = (turn(5.0, 9.0, [7], tokens=5),)
    streams = (Stream("main", "main", main), Stream("sub", "subagent", sub, parent="main", spawn_turn=0))
    return ask([SessionTree("made", BLOCK, streams, namespace="made")])


def test_when_a_stream_comes_back_is_told_as_its_request_begins_and_how_that_ended_at_its_end() -> None:
    asked = _two_streams()
    events = begin(asked, 1, 60.0)
    policy = Listening()
    replay(asked, events, 10, policy, hint_giver("perfect", 1))
    began = events[0].time_s
    told = [(*row[:-1], round(float(row[-1]) - began, 6)) for row in policy.heard]  # type: ignore[arg-type]
    assert told == [
        ("start", "0/main", "", 2, 0, 0.0),
        ("hint", "0/main", Hint("resume_in", 14.0), 0.0),
        ("end", "0/main", 2, "", 4.0),
        ("start", "0/sub", "0/main", 1, 0, 5.0),
        ("hint", "0/sub", Hint("release"), 5.0),
        ("end", "0/sub", 1, "", 9.0),
        ("start", "0/main", "", 3, 2, 14.0),
        ("hint", "0/main", Hint("release"), 14.0),
        ("end", "0/main", 3, "", 15.0),
    ]


def test_hints_say_what_their_names_promise() -> None:
    soon, medium = Hint("resume_in", 30.0, bound="at_most"), Hint("resume_in", 300.0, bound="at_most")
    later, over = Hint("resume_in", 300.0, bound="at_least"), Hint("release")
    gaps = (5.0, 30.0, 31.0, 300.0, 301.0, None)
    assert [hint_giver("class", 1)(gap) for gap in gaps] == [(h,) for h in (soon, soon, medium, medium, later, over)]
    assert [hint_giver("perfect", 1)(gap) for gap in (5.0, 0.0, -1.0)] == [(Hint("resume_in", 5.0),), (), ()]
    assert hint_giver("none", 1)(5.0) == ()
    assert [hint_giver("adversarial", 1)(gap) for gap in gaps[::2]] == [(over,), (later,), (soon,)]
    noisy = hint_giver("noisy", 1)
    given_ = [noisy(5.0)[0] for _ in range(4000)]
    assert sum(1 for hint in given_ if hint != soon) / 4000 == pytest.approx(NOISE, abs=0.03)
    assert set(given_) == {soon, medium, later, over}
    with pytest.raises(ConfigError, match=r"--hints has 'psychic'; there are none, perfect"):
        hint_giver("psychic", 1)


def test_equal_seeds_give_equal_figures(made: AskedSessions) -> None:
    config = EvalConfig(capacity=(0.2,), policies=("agent",), hints=("noisy",), seeds=(4,))
    one, two = (evaluate(config, made, lambda done: None) for _ in range(2))
    assert one == two
    other = EvalConfig(capacity=(0.2,), policies=("agent",), hints=("noisy",), seeds=(5,))
    assert evaluate(other, made, lambda done: None).points[0].lru != one.points[0].lru


def test_no_policy_beats_belady_nor_belady_the_ceiling(made: AskedSessions) -> None:
    config = EvalConfig(capacity=(0.1, 0.3), policies=("ttl", "agent"), hints=HINT_MODES, seeds=(1,))
    done: list[int] = []
    result = evaluate(config, made, done.append)
    assert done == list(range(1, config.num_replays + 1))
    for point in result.points:
        assert point.lru <= point.belady <= point.ceiling < 1.0
        assert len(point.hit) == 2 * len(HINT_MODES)
        assert all(0.0 < hit <= point.belady for hit in point.hit.values())


def test_the_verdict_counts_points_in_the_range_and_looks_for_the_worst_everywhere() -> None:
    def point(seed: int, lru: float, hit: float) -> Point:
        return Point(0.1, 10, seed, 0.95, lru, lru + 0.2, {"p/none": hit})

    points = (point(1, 0.5, 0.6), point(2, 0.7, 0.74), point(3, 0.9, 0.88))
    result = EvalResult(1, 1, 100, 1000, points)
    found = verdict(result, "p/none", (0.4, 0.85))
    assert found.closed == pytest.approx((0.5 + 0.2) / 2)
    assert (found.num_points, found.worst_point.seed) == (2, 3)
    assert found.worst == pytest.approx(-0.02)
    assert verdict(result, "p/none", (0.1, 0.2)).closed is None


# -- the command -------------------------------------------------------------------------------------------------------


def _run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["eval", *(str(argument) for argument in arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_table_json_and_page(tmp_path: Path) -> None:
    page, data = tmp_path / "page.html", tmp_path / "eval.json"
    table = _run(
        "--trace", EXAMPLES, "--capacity", "0.2,0.5", "--seeds", "1,2", "--hints", "none,class", "--json", data,
        "--html", page,
    )  # fmt: skip
    for words in ("hints: none", "hints: class", "belady", "gap closed", "worst - lru", "agent"):
        assert words in table
    made = json.loads(data.read_text())
    assert made["name"] == "policy eval" and made["config"]["seeds"] == [1, 2]
    points = made["measured"]["points"]
    assert [(point["capacity"], point["seed"]) for point in points] == [(0.2, 1), (0.5, 1), (0.2, 2), (0.5, 2)]
    assert sorted(points[0]["hit"]) == ["agent/class", "agent/none", "ttl/class", "ttl/none"]
    text = page.read_text()
    assert "Plotly.newPlot" in text and "Hints: class" in text and "http-equiv" not in text


def test_json_to_stdout_is_nothing_else() -> None:
    told = json.loads(_run("--trace", EXAMPLES, "--capacity", 0.3, "--policy", "agent", "--seeds", 1, "--json", "-"))
    assert told["measured"]["num_sessions"] == 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--capacity", "0.1,2"), "--capacity has 2; it must be more than 0 and at most 1"),
        (("--capacity", "much"), "--capacity has 'much'"),
        (("--capacity", ""), "--capacity is empty"),
        (("--policy", "agent,fifo"), "'fifo' is not known"),
        (("--policy", "agent,agent"), "each once"),
        (("--hints", "psychic"), "there are none, perfect, class"),
        (("--seeds", "x"), "--seeds has 'x'"),
        (("--seeds", "1,1"), "--seeds names no seed, or one twice"),
        (("--seeds", "1-9999"), "at most 1000"),
        (("--mean-start-gap", "0"), "--mean-start-gap is 0"),
        (("--lru-range", "90-40"), "--lru-range is 90-40"),
        (("--json", "/nowhere/at/all.json"), "there is no folder /nowhere/at"),
        (("--html", "/nowhere/at/all.html"), "there is no folder /nowhere/at"),
        (("--html", "-"), "does not go to stdout"),
        (("--html", "/"), "is a folder"),
    ],
)
def test_what_cannot_work_is_said(arguments: tuple[str, ...], words: str) -> None:
    few = () if "--seeds" in arguments else ("--seeds", "1")
    fewer = () if "--capacity" in arguments else ("--capacity", "0.5")
    with pytest.raises(SamovarError, match=words):
        _run("--trace", EXAMPLES, *few, *fewer, *arguments)


def test_traces_without_blocks_are_told() -> None:
    with pytest.raises(TraceError, match="no full block"):
        ask([session_of([Access(0.0, 1.0, (), 3)])])


def test_a_policy_of_another_package_is_replayed_like_ours(
    made: AskedSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other_policies.py").write_text(
        "from samovar.policy.lru import LRU\n\nclass Other(LRU):\n    def __init__(self, capacity_blocks):\n"
        "        super().__init__(name='other')\n"
    )
    info = tmp_path / "other_policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-policies\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[samovar.retention_policies]\nother = other_policies:Other\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    point = evaluate(EvalConfig(capacity=(0.2,), policies=("other",), seeds=(1,)), made, lambda done: None).points[0]
    assert point.hit["other/none"] == point.lru


def test_a_policy_with_a_fault_is_not_judged(
    made: AskedSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "faulty_policies.py").write_text(
        "from samovar.policy.lru import LRU\n\nclass Faulty(LRU):\n    def __init__(self, capacity_blocks):\n"
        "        super().__init__()\n    def turn_started(self, turn, now):\n        raise RuntimeError('boom')\n"
    )
    info = tmp_path / "faulty_policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty-policies\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[samovar.retention_policies]\nfaulty = faulty_policies:Faulty\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SamovarError, match=r"'faulty': turn_started raised RuntimeError: boom$"):
        evaluate(EvalConfig(capacity=(0.2,), policies=("faulty",), seeds=(1,)), made, lambda done: None)
