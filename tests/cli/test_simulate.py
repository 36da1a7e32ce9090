"""`samovar simulate`: the folder it leaves, its figures, and settings it refuses."""

from __future__ import annotations

from importlib import resources
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from samovar.base.errors import ConfigError
from samovar.cli.replay import report
from samovar.cli.simulate import simulate
from samovar.sim.plan import PAGE, RESULT
from samovar.sim.report import EXPLAINED
from samovar.workload.metrics import summarise
from samovar.workload.metrics_record import read_records
from samovar.workload.replay_folder import DERIVED
from tests.cli.sim_traces import session, write

app = typer.Typer()
app.command()(simulate)
app.command()(report)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("load") / "traces")


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run(traces: Path, out: Path, *flags: object) -> dict[str, object]:
    done = invoke(
        "simulate",
        "--trace",
        traces,
        "--model",
        "kimi-k2.6",
        "--device",
        "B200",
        "--duration",
        20,
        "--output",
        out,
        *flags,
    )
    assert done.exit_code == 0, done.output
    found = json.loads((out / "result.json").read_text())
    assert isinstance(found, dict)
    return found


def test_it_leaves_what_a_replay_leaves_and_why(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = ("--tp", 8, "--dcp", 8, "--concurrency", "1,4", "--slo", "p90_ttft_s=9")
    result = run(traces, out, *flags)
    assert result["name"] == "simulate"
    measured = result["measured"]
    assert isinstance(measured, dict) and measured["complete"] is True
    records = list(read_records(out / "requests.jsonl"))
    for point, explained in zip(measured["points"], measured["explained"], strict=True):
        mine = [record for record in records if record.concurrency == point["concurrency"]]
        again = summarise(mine, concurrency=point["concurrency"], gpus=8)
        assert point["tokens_per_gpu_s"] == pytest.approx(again.tokens_per_gpu_s)
        assert point["p90_interactivity"] == pytest.approx(again.p90_interactivity)
        assert point["hit_rate"] <= point["hit_ceiling"]
        assert sum(explained["causes"].values()) == pytest.approx(1.0)
        assert explained["turn"]["decode_s"] > 0
    assert [cost["basis"] for cost in measured["points"][0]["costs"]] == ["own", "rent"]
    assert "<title>Simulated replay: out</title>" in (out / "report.html").read_text()
    page = (out / "explained.html").read_text()
    assert "KV blocks over time, 4 lanes" in page and "Time of a turn" in page and "<script src" not in page
    drawn = invoke("report", out, "--html", tmp_path / "again.html")
    assert drawn.exit_code == 0, drawn.output


def test_more_devices_than_an_engine_takes_are_engines_of_their_own(traces: Path, tmp_path: Path) -> None:
    """At a load that the agents' own gaps limit, several engines do what one over all devices does."""
    flags = ("--model", "deepseek-v4-flash", "--concurrency", 4, "--gpus", 4)
    made = {tp: run(traces, tmp_path / f"tp{tp}", *flags, "--tp", tp)["measured"] for tp in (4, 2, 1)}
    (whole,), *others = (found["points"] for found in made.values())  # type: ignore[index]
    assert whole["issued"] >= 40
    for (split,) in others:
        assert (split["concurrency"], split["gpus"]) == (4, 4)
        for figure in ("issued", "ok", "prompt_tokens", "tokens_per_gpu_s", "hit_ceiling"):
            assert split[figure] == pytest.approx(whole[figure], rel=0.1), figure
    records = list(read_records(tmp_path / "tp2" / "requests.jsonl"))
    assert {record.concurrency for record in records} == {4}


def test_a_small_cache_misses_and_a_host_tier_brings_back(traces: Path, tmp_path: Path) -> None:
    """Four sessions of 7,200 tokens in 9,600: most is lost, unless host memory keeps it."""
    flags = ("--tp", 8, "--num-gpu-blocks-override", 150, "--concurrency", 4, "--start", "0:0")
    bare = run(traces, tmp_path / "bare", *flags)["measured"]
    kept = run(traces, tmp_path / "kept", *flags, "--kv-offloading-size", "64")["measured"]
    assert isinstance(bare, dict) and isinstance(kept, dict)
    assert bare["points"][0]["hit_rate"] < kept["points"][0]["hit_rate"] - 0.1
    assert bare["explained"][0]["lost_share"] > 0.1
    assert sum(link["bytes"] for link in kept["explained"][0]["links"]) > 0


def test_measured_steps_and_drafts(traces: Path, tmp_path: Path) -> None:
    log = tmp_path / "steps.jsonl"
    rows = [
        {"batch": b, "prefill_tokens": p, "kv_read_tokens": k, "seconds": 0.02 + p * 1e-5}
        for b in (0, 1, 4) for p in (0, 4096) for k in (0, 40_000)
    ]  # fmt: skip
    log.write_text("\n".join(json.dumps(row) for row in rows))
    flags = ("--tp", 8, "--num-gpu-blocks-override", 5000)
    whole = run(traces, tmp_path / "plain", *flags, "--steps", log)
    plain, config = whole["measured"], whole["config"]
    assert isinstance(plain, dict) and isinstance(config, dict)
    assert config["given"] == {"model": "kimi-k2.6", "device": "B200", "steps": str(log)}
    assert config["steps"] == "measured" and config["kv_format"] == "fp8"
    page = (tmp_path / "plain" / "explained.html").read_text()
    assert "Steps measured up to 4 sequences, 4,096 prompt tokens and 40,000 tokens of context" in page
    assert "beyond those measured: 5,280 prompt tokens (measured: up to 4,096), at concurrency 1<" in page
    assert plain["points"][0]["p90_interactivity"] == pytest.approx(1 / 0.02, rel=0.1)
    assert next(iter(plain["explained"][0]["causes"])) == "measured"
    drafts = ("--num-speculative-tokens", 3, "--acceptance-length", 2.5)
    drafted = run(traces, tmp_path / "drafted", *flags, "--steps", log, *drafts)["measured"]
    assert isinstance(drafted, dict)
    assert drafted["points"][0]["p90_interactivity"] == pytest.approx(2.5 / 0.02, rel=0.15)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--tp", 8, "--concurrency", "1,x"), "--concurrency 1,x"),
        (("--tp", 8, "--start", "0.3"), "--start 0.3: must be two numbers"),
        (("--tp", 8, "--fit", "squeeze"), "--fit squeeze: must be one of skip, cut"),
        (("--tp", 8, "--slo", "speed=1"), "--slo speed=1"),
        (("--tp", 8, "--duration", "0"), "--duration is 0"),
        (("--tp", 8, "--grace", "-1"), "--grace is -1"),
        (("--tp", 8, "--scale", "0.3"), "--scale is 0.3"),
        (("--tp", 8, "--price", "lease=1"), "--price lease=1"),
        (("--tp", 8, "--prices", "nowhere.toml"), "--prices: cannot read nowhere.toml"),
        (("--tp", 8, "--model", "gpt-9"), "unknown model 'gpt-9'"),
        (("--tp", 8, "--device", "abacus"), "unknown device 'abacus'"),
        (("--tp", 8, "--gpus", "12"), "--gpus is 12; it must be a multiple of"),
        (("--tp", 3), "--tensor-parallel-size is 3; it must divide the 64 heads"),
        (("--tp", 2), "a rank needs 302.0 GB beside its KV"),
        (("--tp", 2), "with --tensor-parallel-size alone 4 devices are enough"),
        (("--tp", 8, "--max-model-len", "99999999"), "a request of 99,999,999 tokens does not fit"),
        (("--tp", 8, "--dcp", 3), "--decode-context-parallel-size is 3"),
        (("--tp", 8, "--dcp", 8, "--monokernel", "on"), "--monokernel works with tensor parallelism alone"),
        (("--tp", 8, "--monokernel", "on", "--enforce-eager"), "--monokernel on and --enforce-eager exclude"),
        (("--tp", 8, "--monokernel", "maybe"), "--monokernel maybe: must be one of on, off"),
        (("--tp", 8, "--moe-comm", "fused"), "--moe-comm fused has no effect"),
        (("--tp", 8, "--moe-comm", "pigeon"), "--moe-comm pigeon: must be one of fused, a2a, ag_rs"),
        (("--tp", 8, "--dcp-q-replicate"), "--dcp-q-replicate has no effect"),
        (("--tp", 8, "--dcp-comm-backend", "a2a"), "--dcp-comm-backend a2a has no effect"),
        (("--tp", 8, "--balancer", "round-robin"), "--balancer round-robin has no effect"),
        (("--dp", 8, "--ep", "--balancer", "x"), "--balancer x: must be one of sticky"),
        (("--tp", 8, "--retention-policy", "fifo"), "--retention-policy fifo: must be one of lru, ttl, agent"),
        (("--tp", 8, "--retention-ttl-s", "5"), "--retention-ttl-s 5.0 has no effect"),
        (("--tp", 8, "--acceptance-length", "2"), "--acceptance-length 2 has no effect without"),
        (("--tp", 8, "--num-speculative-tokens", "3"), "--num-speculative-tokens 3 needs --acceptance-length"),
        (
            ("--dp", 8, "--ep", "--model", "deepseek-v4-pro", "--num-speculative-tokens", 3, "--acceptance-length", 9),
            "--acceptance-length is 9; with 3 drafts it must be from 1 to 4",
        ),
        (("--tp", 8, "--long-prefill-token-threshold", 9000), "--long-prefill-token-threshold 9000 has no effect"),
        (("--tp", 8, "--kv-disk-path", "/d"), "--kv-disk-path is given without --kv-disk-size"),
        (("--tp", 8, "--kv-offloading-size", 8, "--kv-shared"), "--kv-shared has no effect without"),
        (("--tp", 8, "--gpu-memory-utilization", "1.5"), "--gpu-memory-utilization is 1.5"),
        (("--tp", 8, "--front-end-request-ms", "-1"), "--front-end-request-ms is -1; it must be from 0 to 1e+06"),
        (("--tp", 8, "--front-end-request-ms", "inf"), "--front-end-request-ms is inf; it must be a finite number"),
        (("--tp", 8, "--front-end-output-token-ms", "nan"), "--front-end-output-token-ms is nan; it must be a finite"),
        (("--tp", 8, "--duration", "inf"), "--duration is inf; it must be a finite number"),
        (("--tp", 8, "--grace", "inf"), "--grace is inf; it must be a finite number"),
        (("--tp", 8, "--time-scale", "inf"), "--time-scale is inf; it must be a finite number"),
        (("--tp", 8, "--json", "nowhere/result.json"), "--json nowhere/result.json: there is no folder nowhere"),
        (("--tp", 0), "--tensor-parallel-size is 0; it must be at least 1"),
        (("--dp", 0), "--data-parallel-size is 0; it must be at least 1"),
        (("--gpus", 0), "--gpus is 0; it must be at least 1"),
        (("--tp", 8, "--max-model-len", 0), "--max-model-len is 0; it must be at least 1"),
        (("--tp", 8, "--max-num-seqs", 0), "--max-num-seqs is 0; it must be at least 1"),
        (("--tp", 8, "--prefill-schedule-interval", 0), "--prefill-schedule-interval is 0; it must be at least 1"),
        (("--tp", 8, "--overlap", 2), "--overlap is 2; it must be from 0 to 1"),
        (
            ("--tp", 8, "--max-num-seqs", 1, "--prefill-schedule-interval", 2),
            "--prefill-schedule-interval 2 has no effect with --max-num-seqs 1",
        ),
        (
            ("--tp", 8, "--num-gpu-blocks-override", 1),
            "with --num-gpu-blocks-override 1 one rank keeps the KV of 64 tokens: none of 4 sessions fits",
        ),
        (("--tp", 8, "--num-gpu-blocks-override", 10**9), "override is 1000000000; it must be at most 20000000"),
        (("--tp", 8, "--max-model-len", 10), "--max-model-len is 10: none of 4 sessions fits the context of 10 tokens"),
        (("--tp", 8, "--price", "rent=inf"), "--price rent=inf"),
        (
            ("--tp", 8, "--front-end-request-ms", "1e300"),
            "--front-end-request-ms is 1e+300; it must be from 0 to 1e+06",
        ),
        (("--tp", 8, "--duration", "1e9"), "--duration is 1e+09 s; it must be at most 1e+07"),
        (("--tp", 8, "--num-speculative-tokens", -1), "--num-speculative-tokens is -1; it must be at least 0"),
        (("--tp", 8, "--num-speculative-tokens", 99), "--num-speculative-tokens is 99; it must be at most 64"),
        (("--tp", 8, "--gpus", 8000), "--gpus is 8000; it must be at most 4096"),
        (("--tp", 8, "--kv-cache-dtype", "fp99"), "--kv-cache-dtype fp99: must be one of auto, fp32"),
        (
            ("--tp", 8, "--retention-policy", "ttl", "--retention-ttl-s", "nan"),
            "--retention-ttl-s is nan; it must be a finite number above 0",
        ),
        (("--tp", 8, "--balancer", ""), "--balancer : must be one of sticky"),
        (
            ("--tp", 8, "--no-enable-prefix-caching", "--kv-offloading-size", 64),
            "tiers below the device have no effect with --no-enable-prefix-caching",
        ),
        (("--tp", 8, "--steps", "here.csv"), "--steps: unknown step 'here.csv'"),
        (("--tp", 8, "--model", "here.toml"), "--model: cannot read here.toml"),
        (("--tp", 8, "--slo", "p90_ttft_s=inf"), "--slo p90_ttft_s=inf"),
        (("--tp", 8, "--steps", "nowhere.jsonl"), "cannot read nowhere.jsonl"),
        (
            ("--tp", 8, "--steps", "glm-5.3-flash-4xgb10-dcp4", "--monokernel", "on"),
            "--steps gives the time of every step, so that --monokernel",
        ),
        (
            ("--tp", 4, "--gpus", 8, "--model", "deepseek-v4-flash", "--concurrency", 3),
            "--concurrency 3: 2 engines",
        ),
    ],
)
def test_what_cannot_work_is_named(flags: tuple[object, ...], named: str, traces: Path, tmp_path: Path) -> None:
    base = ("--model", "kimi-k2.6", "--device", "B200", "--output", tmp_path / "out")
    done = invoke("simulate", "--trace", traces, *base, *flags)
    assert isinstance(done.exception, ConfigError), done.output
    assert named in done.exception.message
    assert not (tmp_path / "out").exists()


def test_broken_files_alone_are_counted_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for name in "ab":
        (folder / f"{name}.json").write_text("{")
    done = invoke("simulate", "--trace", folder, "--model", "kimi-k2.6", "--device", "B200", "--tp", 8, "--skip-bad")
    assert isinstance(done.exception, ConfigError)
    told = done.exception.message
    assert told.startswith("no sessions to replay: --skip-bad left out 2 of 2 files, the first: ")
    assert str(folder / "a.json") in told


def test_calls_recorded_with_no_tokens_have_one(tmp_path: Path) -> None:
    """Prompts and answers of 0 tokens, which a trace may have, are the longest of their session here."""
    for name, fields in (("in", {"in": 0, "hash_ids": []}), ("out", {"out": 0})):
        one = session(name, turns=2)
        one["requests"] = [{**one["requests"][0], **fields}]
        (tmp_path / f"{name}.json").write_text(json.dumps(one))
        (point,) = run(tmp_path / f"{name}.json", tmp_path / name, "--tp", 8)["measured"]["points"]  # type: ignore[index]
        assert point["ok"] == point["issued"] > 0


def test_sessions_beyond_the_kv_of_a_rank_are_told_so(tmp_path: Path) -> None:
    (tmp_path / "long.json").write_text(json.dumps(session("long", turns=2, first=3_000_000)))
    done = invoke("simulate", "--trace", tmp_path, "--model", "kimi-k2.6", "--device", "B200", "--tp", 8)
    assert isinstance(done.exception, ConfigError)
    assert "one rank keeps the KV of 2,636,352 tokens: none of 1 sessions fits" in done.exception.message


def test_a_device_with_unknown_kernels_is_refused_before_traces_are_read(tmp_path: Path) -> None:
    text = resources.files("samovar.spec").joinpath("data", "devices", "b200.toml").read_text()
    mine = tmp_path / "mine.toml"
    mine.write_text(text.replace('kernels = "blackwell"', 'kernels = "nothing"'))
    done = invoke("simulate", "--trace", tmp_path / "nowhere", "--model", "kimi-k2.6", "--device", mine, "--tp", 8)
    assert isinstance(done.exception, ConfigError) and "unknown kernel file 'nothing'" in done.exception.message


def test_nothing_of_a_run_before_stays_beside_the_new_one(traces: Path, tmp_path: Path) -> None:
    """Each name is another command's."""
    assert {EXPLAINED, PAGE, RESULT} == set(DERIVED)
    out = tmp_path / "out"
    out.mkdir()
    for name in (*DERIVED, "mine.txt"):
        (out / name).write_text("old")
    run(traces, out, "--tp", 8, "--overwrite")
    assert {path.name for path in out.iterdir()} == {
        "mine.txt", "requests.jsonl", "result.json", "report.html", EXPLAINED
    }  # fmt: skip
    assert (out / EXPLAINED).read_text() != "old"


def test_idle_time_may_stay_whole(traces: Path, tmp_path: Path) -> None:
    flags = ("--tp", 8, "--idle-cap", "inf", "--tree-idle-cap", "inf")
    measured = run(traces, tmp_path / "out", *flags)["measured"]
    assert isinstance(measured, dict) and measured["points"][0]["skipped_s"] == 0


def test_a_log_of_one_kind_of_step_is_refused(traces: Path, tmp_path: Path) -> None:
    log = tmp_path / "steps.jsonl"
    log.write_text(json.dumps({"batch": 1, "prefill_tokens": 0, "kv_read_tokens": 0, "seconds": 0.01}))
    done = invoke(
        "simulate", "--trace", traces, "--model", "kimi-k2.6", "--device", "B200", "--tp", 8, "--steps", log
    )  # fmt: skip
    assert isinstance(done.exception, ConfigError)
    assert "steps.jsonl: all its steps compute 0 tokens of prompts" in done.exception.message


def test_a_run_in_which_nothing_ends_says_how_long_a_step_takes(traces: Path, tmp_path: Path) -> None:
    log = tmp_path / "steps.jsonl"
    rows = [{"batch": 1, "prefill_tokens": p, "kv_read_tokens": 0, "seconds": 2.0} for p in (0, 4096)]
    log.write_text("\n".join(json.dumps(row) for row in rows))
    flags = ("--model", "kimi-k2.6", "--device", "B200", "--tp", 8, "--steps", log, "--duration", 20, "--grace", 0)
    done = invoke("simulate", "--trace", traces, *flags, "--output", tmp_path / "out")
    assert done.exit_code == 0, done.output
    words = " ".join(done.output.split())
    assert "no request ended well in time" in words and "2 s each" in words
    assert "Steps went beyond those measured" in words and "take equally long whatever the sequences" in words
