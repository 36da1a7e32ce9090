"""Whole replays over HTTP against a server with faults to order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
import json
from pathlib import Path
from typing import Any

import pytest

from samovar.base.errors import ConfigError
from samovar.bench.replay import Live, ReplayOptions
from samovar.bench.replay_files import ReplaySource
from samovar.bench.replay_job import ReplayJob, run_job
from samovar.bench.replay_server import Server, ServerOptions
from samovar.workload.metrics import Point
from samovar.workload.metrics_record import RequestRecord, read_records
from samovar.workload.prompts import TokenRange
from samovar.workload.recording import PROBE_SESSION
from samovar.workload.replay import ReplayConfig
from samovar.workload.replay_fit import Fitted
from samovar.workload.result import BenchResult
from samovar.workload.session import SessionTree
from tests.bench.fake_server import FakeServer, running
from tests.workload.replay_trees import main_stream, subagent, tree, turn

MAIN = main_stream(
    turn(0, 1, [1, 2, 3], 200, out=6),
    turn(1.1, 2, [1, 2, 3, 4, 5], 350, out=5),
    turn(2.1, 3, [1, 2, 3, 4, 5, 6], 420, out=4),
    turn(3.1, 4, [1, 2, 7, 8], 260, out=3),
    system_tokens=64,
)
SESSION = tree(MAIN, subagent("a", 0, 2, turn(1, 1.5, [1, 2, 9], 192, out=3), turn(1.6, 2, [1, 2, 9, 10], 256)))


class Silent:
    def __init__(self) -> None:
        self.server: Server | None = None
        self.fitted: Fitted | None = None
        self.points: list[Point] = []
        self.seen: list[tuple[str, int]] = []
        self.failed: list[tuple[str, int]] = []

    def begins(self, server: Server, fitted: Fitted) -> None:
        self.server, self.fitted = server, fitted

    def live(self, figures: Live) -> None:
        self.seen.append((figures.phase, figures.done))
        self.failed.append((figures.phase, figures.failed))

    def ended(self, point: Point) -> None:
        self.points.append(point)


def job(fake: FakeServer, *, sessions: Sequence[SessionTree] = (SESSION,), **changes: Any) -> ReplayJob:
    send = {name: changes.pop(name) for name in [*changes] if name in ReplayOptions.__dataclass_fields__}
    rule = {name: changes.pop(name) for name in [*changes] if name in ReplayConfig.__dataclass_fields__}
    options = ReplayOptions(**{"run": "r", "duration_s": 20, "grace_s": 1, "timeout_s": 5, **send})
    rules = ReplayConfig(
        **{"concurrency": 1, "start_from": 0, "start_to": 0, "time_scale": 0.1, "max_visits": 3, **rule}
    )
    values = {"fit": "skip", "lanes": (2,), "server": ServerOptions(), "load": {}, **changes}
    return ReplayJob(url=fake.url, trees=tuple(sessions), rules=rules, options=options, **values)


async def run(fake: FakeServer, path: Path, **changes: Any) -> tuple[BenchResult, str, list[RequestRecord], Silent]:
    watcher = Silent()
    async with running(fake):
        result, partial = await run_job(job(fake, **changes), path, watcher)
    records = list(read_records(path / "requests.jsonl"))
    assert ReplaySource(path).read().points == tuple(watcher.points)
    assert "<title>" in (path / "report.html").read_text()
    return result, partial, records, watcher


@pytest.mark.parametrize(
    "form",
    ["tokens", pytest.param("text", marks=pytest.mark.slow), pytest.param("chat", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("live", [False, True])
async def test_a_replay_makes_every_call_and_finds_what_the_ceiling_says(form: str, live: bool, tmp_path: Path) -> None:
    fake = FakeServer(forms=(form,))
    out = tmp_path / "run"
    result, partial, records, watcher = await run(fake, out, lanes=(1, 2), live_history=live)
    assert partial == "" and result.measured["complete"]
    assert watcher.server is not None and watcher.server.form == form
    assert watcher.server.block_tokens == 16 and watcher.server.block_tokens_known
    assert [point.ok for point in watcher.points] == [18, 18]
    assert {r.status for r in records} == {"ok"} and len(records) == 36
    assert all(r.output_tokens == r.planned_output_tokens for r in records)
    for point in watcher.points:
        assert point.hit_rate is not None and point.hit_ceiling is not None
        if form == "chat":  # role tokens shift blocks, and answers end inside one
            assert 0 < point.prompt_drift < 0.05
            assert abs(point.hit_rate - point.hit_ceiling) < 0.08
        elif live:
            assert 0 <= point.hit_ceiling - point.hit_rate < 0.05  # this server does not keep what it generates
        else:
            assert point.hit_rate == point.hit_ceiling
            assert point.prompt_drift == 0
    assert all(body["ignore_eos"] and body["stream_options"] == {"include_usage": True} for body in fake.bodies)


async def test_agents_name_themselves_and_their_parents(tmp_path: Path) -> None:
    fake = FakeServer()
    await run(fake, tmp_path / "run", max_visits=1)
    by_agent = {(h["x-session-id"], h.get("x-parent-session-id")) for h in fake.headers}
    assert by_agent == {("r-c2-l0-v0-s0", None), ("r-c2-l0-v0-s1", "r-c2-l0-v0-s0")}
    assert len({h["x-request-id"] for h in fake.headers}) == 6


async def test_live_history_sends_what_the_server_said(tmp_path: Path) -> None:
    fake = FakeServer(forms=("tokens",))
    await run(fake, tmp_path / "run", max_visits=1, live_history=True)
    main = [b["prompt"] for b, h in zip(fake.bodies, fake.headers, strict=True) if h["x-session-id"].endswith("s0")]
    assert main[1][:200] == main[0] and main[1][200:206] == [5000 + n for n in range(6)]
    assert len(main[1]) == 350


async def test_the_ceiling_of_live_history_counts_what_the_server_generated(tmp_path: Path) -> None:
    grown = tree(
        main_stream(turn(0, 1, [1], 100, out=45), turn(1, 2, [1, 2, 3], 200, out=90), turn(2, 3, [1, 2, 3, 4], 300))
    )
    fake = FakeServer(forms=("tokens",), keeps_answers=True)
    _, _, records, _ = await run(fake, tmp_path / "run", sessions=[grown], lanes=(1,), max_visits=1, live_history=True)
    assert [(r.cached_tokens, r.ceiling_tokens) for r in records] == [(0, 0), (144, 144), (288, 288)]


async def test_token_ids_that_a_server_counts_otherwise_are_not_sent(tmp_path: Path) -> None:
    _, _, _, watcher = await run(FakeServer(retokenises=True), tmp_path / "run", max_visits=1)
    assert watcher.server is not None and watcher.server.form == "text"


async def test_failures_are_recorded_and_the_sessions_go_on(tmp_path: Path) -> None:
    fake = FakeServer(fails_every=6, breaks_every=7)
    _, partial, records, watcher = await run(fake, tmp_path / "run", max_failed=0.5)
    assert partial == ""
    (point,) = watcher.points
    assert (point.ok, point.failed, point.issued) == (13, 5, 18)
    assert point.errors == {"HTTP 500: it broke": 3, "the stream ended before the answer did": 2}
    assert {r.status for r in records} == {"ok", "failed"}
    assert point.slo_met == 13


async def test_a_server_that_claims_more_hits_than_tokens_is_not_believed(tmp_path: Path) -> None:
    _, partial, records, _ = await run(FakeServer(brags=True), tmp_path / "run")
    assert "the usage is impossible: 1000000000 cached of" in partial
    assert {r.status for r in records} <= {"failed", "cut"}


async def test_too_many_failures_end_the_run_with_a_partial_result(tmp_path: Path) -> None:
    fake = FakeServer(fails_every=2)
    result, partial, records, watcher = await run(fake, tmp_path / "run", max_visits=50, lanes=(1, 2))
    assert partial.startswith("3 of 6 requests failed, more than the share of 0.1 allowed; the last: HTTP 500")
    assert not result.measured["complete"]
    assert len(watcher.points) == 1 and not watcher.points[0].complete
    assert len(records) < 20


async def test_a_dying_server_ends_the_run_with_a_partial_result(tmp_path: Path) -> None:
    fake = FakeServer(dies_after=8)
    result, partial, records, watcher = await run(fake, tmp_path / "run", lanes=(2, 4))
    assert partial.startswith("the server does not answer any more")
    assert not result.measured["complete"] and result.config["concurrency"] == [2, 4]
    assert sum(r.status == "ok" for r in records) == 8
    assert watcher.points[0].failed + watcher.points[0].cut >= 1
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<b>Partial.</b>" in page and "does not answer" in page
    assert ReplaySource(tmp_path / "run").read().points == tuple(watcher.points)


async def test_requests_that_hang_time_out(tmp_path: Path) -> None:
    fake = FakeServer(hangs=True)
    _, _, records, _ = await run(fake, tmp_path / "run", timeout_s=1.0, duration_s=1.5, max_failed=1.0)
    assert {r.error for r in records if r.status == "failed"} == {"no complete answer in 1 s"}


async def test_what_runs_at_the_end_gets_its_grace_then_is_cut_off_and_counted(tmp_path: Path) -> None:
    long = tree(main_stream(turn(0, 1, [1], 64, out=400)))
    fake = FakeServer(token_s=0.02)
    _, partial, records, watcher = await run(fake, tmp_path / "run", sessions=[long], duration_s=1.0, grace_s=0.5)
    assert partial == ""
    assert [(r.status, r.error) for r in records] == [("cut", "cut off at the end of the run")] * 2
    assert all(0 < r.output_tokens < 400 and r.end_s - r.start_s >= 1.4 for r in records)
    assert (watcher.points[0].issued, watcher.points[0].ok, watcher.points[0].cut) == (2, 0, 2)


async def test_an_interrupted_run_keeps_what_it_had(tmp_path: Path) -> None:
    fake = FakeServer(token_s=0.02)
    watcher = Silent()
    async with running(fake):
        task = asyncio.create_task(run_job(job(fake, lanes=(2, 4)), tmp_path / "run", watcher))
        while len(fake.bodies) < 6:
            await asyncio.sleep(0.02)
        task.cancel()
        result, partial = await task
    assert partial == "interrupted"
    assert not result.measured["complete"] and len(result.measured["points"]) == 1
    statuses = [r.status for r in read_records(tmp_path / "run" / "requests.jsonl")]
    assert "ok" in statuses and "cut" in statuses


async def test_an_overflow_ends_its_tree(tmp_path: Path) -> None:
    fake = FakeServer(overflows_every=2)
    _, _, records, watcher = await run(fake, tmp_path / "run", lanes=(1,), sessions=[tree(MAIN)], max_failed=1.0)
    assert [(r.visit, r.turn) for r in records] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert watcher.points[0].sessions_finished == 3


async def test_warm_up_is_kept_apart(tmp_path: Path) -> None:
    fake = FakeServer()
    _, _, records, watcher = await run(fake, tmp_path / "run", **WARM)
    warm = [r for r in records if r.phase == "warmup"]
    assert all(r.end_s <= 0 and r.output_tokens == 1 for r in warm)
    assert all(r.start_s >= 0 for r in records if r.phase == "profile")
    assert (len(warm), watcher.points[0].warmup_requests) == (2, 2)
    assert watcher.seen[0][0] in ("warmup", "profile")


WARM: dict[str, Any] = {"start_from": 0.6, "start_to": 0.6, "warmup_calls": 1, "max_visits": 1, "lanes": (1,)}


async def test_failures_are_told_apart_by_phase(tmp_path: Path) -> None:
    """The warm-up's two calls fail, the measured ones do not, and everybody says so in the same way."""
    fake = FakeServer(fails_until=2, token_s=0.1)
    _, partial, records, watcher = await run(fake, tmp_path / "run", max_failed=1.0, **{**WARM, "max_visits": 2})
    (point,) = watcher.points
    assert partial == "" and [r.status for r in records if r.phase == "warmup"] == ["failed", "failed"]
    assert (point.warmup_requests, point.warmup_failed, point.failed, point.issued) == (2, 2, 0, point.ok)
    assert watcher.seen[-1] == ("profile", point.ok) and point.ok > 0
    assert all(failed == 0 for phase, failed in watcher.failed if phase == "profile")


async def test_a_run_that_failures_end_says_in_which_phase(tmp_path: Path) -> None:
    _, partial, _, watcher = await run(
        FakeServer(fails_every=1), tmp_path / "run", **{**WARM, "lanes": (3,), "max_visits": 3}, max_failed=0.1
    )
    assert partial.startswith("3 of 3 requests failed (3 of 3 in the warm-up), more than the share of 0.1 allowed")
    assert (watcher.points[0].issued, watcher.points[0].failed, watcher.points[0].warmup_failed) == (0, 0, 3)


async def test_a_token_range_beyond_the_vocabulary_is_no_reason_for_another_form(tmp_path: Path) -> None:
    async with running(FakeServer(vocabulary=20_000)) as fake:
        with pytest.raises(ConfigError, match=r"--token-range 1000:30000: .* but not these .*no token 29999"):
            await run_job(job(fake), tmp_path / "a", Silent())
        assert fake.bodies == []
    fake = FakeServer(vocabulary=20_000)
    _, partial, _, watcher = await run(fake, tmp_path / "b", max_visits=1, tokens=TokenRange(1000, 20_000))
    assert partial == "" and watcher.server is not None and watcher.server.form == "tokens"


async def test_why_not_another_form_is_kept(tmp_path: Path) -> None:
    result, _, _, watcher = await run(FakeServer(forms=("chat",)), tmp_path / "run", max_visits=1)
    assert watcher.server is not None
    assert watcher.server.form_reason.startswith("tokens: HTTP 400") and "text: HTTP 400" in watcher.server.form_reason
    assert result.config["server"]["form_reason"] == watcher.server.form_reason


async def test_sessions_too_long_are_skipped_or_cut_and_counted(tmp_path: Path) -> None:
    fake = FakeServer(max_model_len=300)
    short = tree(main_stream(turn(0, 1, [1], 64)), name="short")
    result, _, records, _ = await run(fake, tmp_path / "skip", sessions=[SESSION, short])
    assert result.config["traces"]["sessions_skipped"] == ["t"]
    assert {r.tree for r in records} == {"short"}
    result, _, records, _ = await run(FakeServer(max_model_len=300), tmp_path / "cut", sessions=[SESSION], fit="cut")
    assert result.config["traces"]["sessions_cut"] == {"t": 3}
    assert max(r.prompt_tokens + r.output_tokens for r in records) <= 300


async def test_servers_that_say_less_or_take_less_work_too(tmp_path: Path) -> None:
    fake = FakeServer(takes_ignore_eos=False, max_model_len=None, says_block_size=False, says_cached=False)
    _, partial, records, watcher = await run(fake, tmp_path / "run", max_visits=1)
    assert partial == "" and watcher.server is not None
    assert not watcher.server.forces_length and watcher.server.max_tokens is None
    assert (watcher.server.block_tokens, watcher.server.block_tokens_known) == (16, False)
    assert watcher.points[0].hit_rate is None and watcher.points[0].hit_ceiling is not None
    assert {r.hit_class for r in records} == {"unknown"}
    assert all("ignore_eos" not in body for body in fake.bodies)


async def test_what_the_user_says_goes_before_what_the_server_says(tmp_path: Path) -> None:
    options = ServerOptions(model="mine", form="text", max_tokens=500, block_tokens=8)
    fake = FakeServer()
    _, _, _, watcher = await run(fake, tmp_path / "run", max_visits=1, server=options)
    assert watcher.server == Server(fake.url, "mine", "text", True, 500, 8, True)


async def test_errors_before_the_run_name_the_flag(tmp_path: Path) -> None:
    async with running(FakeServer(forms=())) as fake:
        with pytest.raises(ConfigError, match=r"takes prompts in no form tried \(tokens: HTTP 400"):
            await run_job(job(fake), tmp_path / "a", Silent())
        url = fake.url
    gone = FakeServer(url=url)
    with pytest.raises(ConfigError, match="--url: no server answers at"):
        await run_job(job(gone), tmp_path / "b", Silent())
    async with running(FakeServer()) as fake:
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "notes.txt").write_text("mine")
        with pytest.raises(ConfigError, match=r"--output .*full: the folder is not empty \(it holds notes.txt\)"):
            await run_job(job(fake), tmp_path / "full", Silent())
        assert fake.probes == fake.bodies == []


async def test_a_run_may_replace_another(tmp_path: Path) -> None:
    path = tmp_path / "run"
    await run(FakeServer(), path, lanes=(1, 2), max_visits=1)
    (path / "notes.txt").write_text("mine")
    async with running(FakeServer()) as fake:
        await run_job(job(fake, lanes=(3,), max_visits=1), path, Silent(), overwrite=True)
    assert {r.concurrency for r in read_records(path / "requests.jsonl")} == {3}
    assert [point.concurrency for point in ReplaySource(path).read().points] == [3]
    assert (path / "notes.txt").read_text() == "mine"


async def test_probes_say_that_they_are(tmp_path: Path) -> None:
    fake = FakeServer(forms=("chat",), takes_ignore_eos=False)
    await run(fake, tmp_path / "run", max_visits=1)
    assert [h["x-session-id"] for h in fake.probes] == [PROBE_SESSION]
    assert not any(h["x-session-id"].startswith(PROBE_SESSION) for h in fake.headers)


async def test_a_killed_run_is_reported_from_the_requests_it_left(tmp_path: Path) -> None:
    path = tmp_path / "run"
    _, _, _, watcher = await run(FakeServer(), path, lanes=(1, 2), max_visits=1)
    result = json.loads((path / "result.json").read_text())
    del result["measured"]["points"][1]
    (path / "result.json").write_text(json.dumps(result))
    first, second = ReplaySource(path).read().points
    assert first == watcher.points[0]
    assert (second.complete, second.stopped) == (False, "the load generator was killed before the end")
    assert (second.ok, second.ttft_s, second.gpus) == (6, watcher.points[1].ttft_s, 1)


def test_sources_that_are_no_replay_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*result.json"):
        ReplaySource(tmp_path).read()
    (tmp_path / "result.json").write_text("[]")
    with pytest.raises(ConfigError, match="not a result file"):
        ReplaySource(tmp_path).read()
