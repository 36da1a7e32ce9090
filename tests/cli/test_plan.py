"""`samovar plan`: a whole plan on a small load; what it prints can be pasted and gives the same figures."""

from __future__ import annotations

import json
import os
from pathlib import Path
import re
import shlex
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from samovar.base.errors import ConfigError
from samovar.cli.plan import plan
from samovar.cli.simulate import simulate
import samovar.spec
from tests.cli.sim_traces import write

app = typer.Typer()
app.command()(plan)
app.command()(simulate)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("load") / "traces")


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model and a device as they ship, but small: a rank of a whole one has half a million blocks to check."""
    folder, shipped = tmp_path_factory.mktemp("own"), Path(samovar.spec.__file__).parent / "data"
    model = (shipped / "models" / "qwen3-235b.toml").read_text()
    (folder / "model.toml").write_text(
        model.replace("layers = 94", "layers = 8").replace("experts = 128", "experts = 16")
    )
    device = (shipped / "devices" / "b200.toml").read_text()
    memory = re.sub(r"(?m)^memory_bytes = .*$", "memory_bytes = 16_000_000_000", device)
    (folder / "device.toml").write_text(memory)
    return folder / "model.toml", folder / "device.toml"


@pytest.fixture(scope="module")
def planned(
    traces: Path, own: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, dict[str, Any]]:
    out = tmp_path_factory.mktemp("out") / "plan"
    out.mkdir()
    (out / "explained.html").write_text("of a simulation before")
    done = invoke(
        "plan", "--trace", traces, "--model", own[0], "--device", own[1], "--gpus", 2,
        "--slo", "p90_ttft_s=5", "--price", "own=1.25,rent=4", "--concurrency", "4,1", "--duration", 3, "--seed", 7,
        "--start", "0.1234567:0.5", "--grace", 40, "--kv-offloading-size", 8, "--processes", 1, "--output", out,
        "--overwrite",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return out, done.output, json.loads((out / "plan.json").read_text())


def test_the_plan_says_what_and_why(planned: tuple[Path, str, dict[str, Any]]) -> None:
    out, told, result = planned
    assert result["name"] == "plan" and result["config"]["concurrency"] == [1, 4]
    found = result["measured"]
    trials = found["trials"]
    assert len({json.dumps([t["setup"], t["concurrency"]]) for t in trials}) == len(trials)
    for ladder in found["ladders"]:
        assert ladder["concurrency"] == trials[ladder["best"]]["concurrency"]
        assert {"mono decode", "eager launches", "DEP2", "tiers below the device"} <= {
            one["name"] for one in ladder["alone"]
        }
    best = trials[found["recommended"]]
    assert found["meets_slo"] and best["point"]["ttft_s"]["p90"] <= 5
    assert found["recommended"] in [ladder["best"] for ladder in found["ladders"]]
    rates = [trials[ladder["best"]]["point"]["tokens_per_gpu_s"] for ladder in found["ladders"]]
    assert 0.98 * max(rates) <= best["point"]["tokens_per_gpu_s"]
    assert best["point"]["costs"][0]["per_million_tokens"] > 0
    alone = {one["name"]: one for one in found["ladders"][0]["alone"]}
    assert alone["2 x TP1"]["trial"] is None and "cannot share it evenly" in alone["2 x TP1"]["reason"]
    for words in ("The best configuration at each load", "alone, on the baseline", "Together, 4 lanes",
                  "Not to be had", "Recommended: ", "vllm serve MODEL --tensor-parallel-size",
                  best["verdict"].split(" (")[0]):  # fmt: skip
        assert words in told, words
    assert {path.name for path in out.iterdir()} == {"plan.html", "plan.json", "trials.jsonl"}
    page = (out / "plan.html").read_text()
    assert "Frontier" in page and "vllm serve" in page and "<script src" not in page


def test_the_command_printed_gives_the_same_figures(planned: tuple[Path, str, dict[str, Any]], tmp_path: Path) -> None:
    _, _, result = planned
    found = result["measured"]
    words = shlex.split(found["flags"]["The same figures again"])
    assert words[:2] == ["samovar", "simulate"]
    done = invoke(*words[1:], "--output", tmp_path / "again")
    assert done.exit_code == 0, done.output
    again = json.loads((tmp_path / "again" / "result.json").read_text())
    best = found["trials"][found["recommended"]]
    assert again["config"]["engine"] == best["setup"]
    (point,) = again["measured"]["points"]
    assert point == best["point"] and point["slo"] and point["costs"]


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--gpus", 1), "no layout of Kimi-K2.6 fits 1 x B200"),
        (("--gpus", 0), "--gpus is 0; it must be at least 1"),
        (("--max-num-seqs", 0), "--max-num-seqs is 0; it must be at least 1"),
        (("--max-model-len", 0), "--max-model-len is 0; it must be at least 1"),
        (("--overlap", 2), "--overlap is 2; it must be from 0 to 1"),
        (("--duration", "inf"), "--duration is inf; it must be a finite number"),
        (("--json", "nowhere/plan.json"), "--json nowhere/plan.json: there is no folder nowhere"),
        (("--concurrency", "0"), "--concurrency 0"),
        (("--slo", "p90_speed=3"), "--slo p90_speed=3"),
        (("--duration", "0.5"), "--duration is 0.5 s; it must be at least 1"),
        (("--moe-comm", "x"), "--moe-comm x: must be one of fused, a2a, ag_rs"),
        (("--acceptance-length", 2), "--acceptance-length 2 has no effect without --num-speculative-tokens"),
        (("--retention-policy", "x"), "--retention-policy x: must be one of lru"),
        (("--kv-offloading-size", "-3"), "--kv-offloading-size is '-3'"),
        (("--processes", 0), "--processes is 0; it must be at least 1"),
        (("--gpu-memory-utilization", "nan"), "--gpu-memory-utilization is nan; it must be more than 0 and at most 1"),
        (("--kv-cache-dtype", "x"), "--kv-cache-dtype x: must be one of auto"),
        (("--processes", 10**6), "--processes is 1000000; it must be at most 256"),
        (("--max-model-len", 10), "--max-model-len is 10: none of 4 sessions fits the context of 10 tokens"),
    ],
)
def test_what_cannot_work_is_named(flags: tuple[object, ...], named: str, traces: Path, tmp_path: Path) -> None:
    base = ("--model", "kimi-k2.6", "--device", "B200", "--output", tmp_path / "out")
    done = invoke("plan", "--trace", traces, *base, *flags)
    assert isinstance(done.exception, ConfigError), done.output
    assert named in done.exception.message


def test_a_folder_with_anything_in_it_is_left_alone(traces: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    done = invoke("plan", "--trace", traces, "--model", "kimi-k2.6", "--device", "B200", "--output", tmp_path)
    assert isinstance(done.exception, ConfigError) and "is not empty" in done.exception.message


def test_ctrl_c_leaves_what_had_ended_and_the_next_run_goes_on(
    traces: Path, own: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    monkeypatch.setenv("PATH", str(tmp_path))  # no git: of changed code, which this may be, nothing is taken over
    flags = ["--trace", traces, "--model", own[0], "--device", own[1], "--gpus", 1, "--concurrency", 2, "--duration",
             2, "--processes", 2, "--output", out]  # fmt: skip
    command = [sys.executable, "-m", "samovar.cli.main", "plan", *map(str, flags)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)
    until = time.monotonic() + 60
    while num_lines(out / "trials.jsonl") < 3 and running.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to all of them
    told, errors = running.communicate()
    assert (running.returncode, told) == (130, ""), errors
    had = num_lines(out / "trials.jsonl") - 1
    assert had >= 2 and f"interrupted after {had} of about" in errors and "Traceback" not in errors
    assert f"the same command with --output {out} goes on from there" in " ".join(errors.split())
    result = json.loads((out / "plan.json").read_text())["measured"]
    assert result["complete"] is False and len(result["trials"]) == had
    until = time.monotonic() + 20
    while (left := alive(running.pid)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left
    done = invoke("plan", *flags)
    assert done.exit_code == 0, done.output
    assert f"{had} simulations of an earlier run are taken over" in done.output
    assert json.loads((out / "plan.json").read_text())["measured"]["complete"] is True
    other = invoke("plan", *flags, "--seed", 5)
    assert isinstance(other.exception, ConfigError) and "--seed was 42 and is 5" in other.exception.message


def num_lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def alive(group: int) -> list[str]:
    """Processes of the group, but for those that have ended and that nobody has asked about since."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of, *_ = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(of) == group and state != "Z":
            found.append(path.parent.name)
    return found
