"""The commands: from trace files and flags to a folder of results and a report."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from samovar.base.errors import ConfigError
from samovar.cli.replay import replay, report
from tests.bench.fake_server import FakeServer, running

app = typer.Typer()
app.command()(replay)
app.command()(report)

SESSION = {
    "id": "demo",
    "models": ["m"],
    "block_size": 64,
    "hash_id_scope": "local",
    "tool_tokens": 128,
    "system_tokens": 64,
    "requests": [
        {"t": 0.0, "type": "n", "model": "m", "in": 1000, "out": 40, "hash_ids": list(range(1, 17)), "api_time": 0.1},
        {"t": 0.2, "type": "n", "model": "m", "in": 1300, "out": 20, "hash_ids": list(range(1, 22)), "api_time": 0.1},
        {"t": 0.4, "type": "n", "model": "m", "in": 1500, "out": 20, "hash_ids": list(range(1, 25)), "api_time": 0.1},
    ],
}


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps(SESSION))
    (folder / "b.json").write_text(json.dumps({**SESSION, "id": "other"}))
    return folder


async def invoke(*arguments: object) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, [str(argument) for argument in arguments])


async def test_a_replay_leaves_requests_result_and_report(traces: Path, tmp_path: Path) -> None:
    out, copy = tmp_path / "out", tmp_path / "copy.json"
    flags = ("--scale", 0.25, "--concurrency", "1,2", "--start", "0:0", "--sessions", 2, "--slo", "p90_ttft_s=9")
    async with running(FakeServer()) as fake:
        done = await invoke(
            "replay", "--url", f"{fake.url}/v1", "--trace", traces, *flags, "--gpu", "H200", "--price", "rent=9",
            "--output", out, "--json", copy,
        )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "fake at http" in done.output and "2 sessions" in done.output
    result = json.loads((out / "result.json").read_text())
    assert result == json.loads(copy.read_text())
    assert [point["issued"] for point in result["measured"]["points"]] == [6, 6]
    assert [point["slo_met"] for point in result["measured"]["points"]] == [6, 6]
    assert [cost["hourly"] for cost in result["measured"]["points"][0]["costs"]] == [1.22, 9]
    assert result["config"]["traces"]["scale"] == 0.25
    lines = [json.loads(line) for line in (out / "requests.jsonl").read_text().splitlines()]
    assert {line["planned_prompt_tokens"] for line in lines} == {250, 325, 375}
    assert {line["output_tokens"] for line in lines} == {10, 5}
    page = tmp_path / "both.html"
    drawn = await invoke("report", out, out / "result.json", "--html", page, "--title", "Two")
    assert drawn.exit_code == 0, drawn.output
    assert "<title>Two</title>" in page.read_text()


async def test_equal_run_ids_send_equal_prompts(traces: Path, tmp_path: Path) -> None:
    sent = []
    for number, run_id in enumerate(("x", "x", "y")):
        async with running(FakeServer()) as fake:
            out = tmp_path / str(number)
            flags = ("--start", "0:0", "--sessions", 1, "--run-id", run_id, "--output", out, "--json", "-")
            done = await invoke("replay", "--url", fake.url, "--trace", traces, *flags)
        assert '"name":"replay"' in done.stdout
        sent.append([body["prompt"] for body in fake.bodies])
    assert sent[0] == sent[1] != sent[2]


async def test_a_run_that_is_not_whole_exits_with_1_and_says_why(traces: Path, tmp_path: Path) -> None:
    async with running(FakeServer(fails_every=1)) as fake:
        done = await invoke(
            "replay", "--url", fake.url, "--trace", traces, "--start", "0:0", "--output", tmp_path / "o"
        )
    assert done.exit_code == 1
    assert "partial:" in done.output and "HTTP 500: it broke" in done.output


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--concurrency", "1,x"), "--concurrency 1,x"),
        (("--concurrency", "2,2"), "--concurrency 2,2"),
        (("--concurrency", "0"), "--concurrency 0"),
        (("--concurrency", "100000"), "--concurrency 100000"),
        (("--start", "0.3"), "--start 0.3"),
        (("--token-range", "a:b"), "--token-range a:b"),
        (("--fit", "squeeze"), "--fit squeeze: must be one of skip, cut"),
        (("--send", "pigeon"), "--send pigeon: must be one of tokens, text, chat"),
        (("--slo", "speed=1"), "--slo speed=1"),
        (("--gpu", "H2000"), "--gpu H2000"),
        (("--gpu", "H200", "--price", "lease=1"), "--price lease=1"),
        (("--gpus", "0"), "--gpus is 0"),
        (("--duration", "0"), "--duration is 0"),
        (("--max-failed", "2"), "--max-failed is 2"),
        (("--scale", "0.3"), "--scale is 0.3"),
        (("--url", "localhost"), "--url localhost"),
        (("--block-size", "0"), "--block-size is 0; it must be at least 1"),
        (("--block-size", "-16"), "--block-size is -16"),
        (("--max-context-length", "0"), "--max-context-length is 0"),
        (("--prices", "p.toml"), "--prices p.toml: needs --gpu"),
        (("--prices", "p.toml", "--price", "own=1"), "--prices p.toml: needs --gpu"),
        (("--send", "text", "--token-range", "5:9"), "--token-range 5:9: has no effect with --send text"),
        (("--send", "chat", "--token-range", "5:9"), "--token-range 5:9: has no effect with --send chat"),
        (("--scale", "1e-9"), "--scale is 1/1000000000: every prompt of the 2 sessions becomes shorter than one block"),
    ],
)
def test_flags_that_cannot_work_are_named_before_anything_is_sent(
    flags: tuple[str, ...], named: str, traces: Path
) -> None:
    arguments = ["replay", "--url", "http://127.0.0.1:9", "--trace", str(traces), *flags]
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, ConfigError)
    assert named in done.exception.message


async def test_what_the_table_leaves_out_is_said_below_it(traces: Path, tmp_path: Path) -> None:
    flags = ("--start", "0.9:0.9", "--sessions", 2, "--warmup-calls", 1, "--max-failed", 1, "--scale", 0.25)
    fake = FakeServer(fails_until=1, answers_short_by=2, counts_extra=3)
    async with running(fake):
        done = await invoke("replay", "--url", fake.url, "--trace", traces, *flags, "--output", tmp_path / "out")
    point = json.loads((tmp_path / "out" / "result.json").read_text())["measured"]["points"][0]
    assert point["short_answers"] == point["ok"] > 0 and point["prompt_drift"] > 0
    told = (
        f"concurrency 1: 1 of {point['warmup_requests']} warm-up requests failed (the table leaves these out); "
        f"{point['ok']} of {point['ok']} answers were shorter than asked for; the server counted "
        f"{100 * point['prompt_drift']:.2g}% more prompt tokens than sent"
    )
    assert told in done.output


async def test_a_table_that_tells_all_has_nothing_below_it(traces: Path, tmp_path: Path) -> None:
    async with running(FakeServer()) as fake:
        done = await invoke(
            "replay",
            "--url",
            fake.url,
            "--trace",
            traces,
            "--start",
            "0:0",
            "--sessions",
            1,
            "--output",
            tmp_path / "o",
        )
    assert "hit" in done.output and "concurrency 1:" not in done.output


async def test_a_folder_with_anything_in_it_is_not_written_into(traces: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.html").write_text("of something else")
    command = ("replay", "--url", "http://127.0.0.1:9", "--trace", traces, "--output", tmp_path / "out")
    done = await invoke(*command)
    assert isinstance(done.exception, ConfigError) and f"--output {tmp_path / 'out'}" in done.exception.message
    assert (tmp_path / "out" / "report.html").read_text() == "of something else"
    async with running(FakeServer()) as fake:
        more = ("--url", fake.url, "--start", "0:0", "--sessions", 1, "--overwrite")
        done = await invoke(*command, *more)
    assert done.exit_code == 0, done.output
    assert "<title>Agent replay" in (tmp_path / "out" / "report.html").read_text()


async def test_sessions_that_shrink_to_nothing_are_left_out_and_said(traces: Path, tmp_path: Path) -> None:
    """The long one keeps a block of its 24, the short ones none."""
    ids = list(range(1, 200))
    long = {**SESSION["requests"][0], "in": 64 * 199, "hash_ids": ids}  # type: ignore[index]
    (traces / "c.json").write_text(json.dumps({**SESSION, "id": "long", "requests": [long]}))
    flags = ("--scale", 1 / 64, "--start", "0:0", "--sessions", 1, "--output", tmp_path / "out")
    async with running(FakeServer()) as fake:
        done = await invoke("replay", "--url", fake.url, "--trace", traces, *flags)
    assert done.exit_code == 0, done.output
    assert "left out 2 of 3 sessions" in done.output and "demo, other" in done.output
    load = json.loads((tmp_path / "out" / "result.json").read_text())["config"]["traces"]
    assert (load["sessions"], load["sessions_emptied"]) == (1, ["demo", "other"])
