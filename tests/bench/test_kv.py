"""`samovar bench kv`: small runs of the real steps, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
import os
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from samovar.base.errors import ConfigError
from samovar.bench.compute.timing import Timing
from samovar.bench.kv import KVBench, pool_shapes, run
from samovar.bench.kv_figures import figures_of
from samovar.cli.bench import app
from samovar.spec.model import ModelSpec, RopeSpec
from samovar.workload.result import BenchResult

SHAPES = (((1, 2, 16, 16, 2), "uint16"), ((1, 2, 8, 32, 2), "uint16")) * 2
SMALL = KVBench(sizes_bytes=(64 << 10,), threads=(1, 2), repeats=2, memory_bytes=1 << 20)


def spec() -> ModelSpec:
    return ModelSpec("llama", 100, 64, 128, 3, 4, 2, 32, 1e-5, RopeSpec(10_000.0), 512)


def direct_works(folder: Path) -> bool:
    try:
        os.close(os.open(folder / "try", os.O_RDWR | os.O_CREAT | os.O_DIRECT))
    except OSError:
        return False
    return True


def test_every_step_is_measured_beside_a_plain_copy() -> None:
    told: list[str] = []
    measured = run(SMALL, SHAPES, told.append)
    assert measured.disk == []
    assert [(f.what, f.block_bytes, f.threads) for f in measured.host] == [
        (what, size, threads)
        for threads in (1, 2)
        for size in (64 << 10, 8 << 10)
        for what in ("np.copyto", "checksum alone", "put", "get")
    ]
    assert [f.what for f in measured.blocks] == ["np.copyto", "gather", "scatter", "store", "load"] * 2
    for figure in measured.figures:
        assert figure.beside == "np.copyto" and figure.bytes_per_s > 0
        assert figure.share == 1 or figure.what != "np.copyto"
        assert figure.median_s * figure.bytes_per_s == pytest.approx(figure.block_bytes)
    assert len(told) == 6


def test_the_disk_beside_plain_calls(tmp_path: Path) -> None:
    if not direct_works(tmp_path):
        pytest.skip("no O_DIRECT here")
    left = sorted(tmp_path.iterdir())
    measured = run(replace(SMALL, disk=tmp_path, disk_bytes=4 << 20, threads=(1,), repeats=1), SHAPES, print)
    names = [(f.what, f.beside) for f in measured.disk]
    assert (
        names[1::2]
        == [
            ("read", "O_DIRECT pread"),
            ("read, 8 neighbours", "O_DIRECT pread of 8"),
            ("write, one commit", "O_DIRECT pwrite and fdatasync"),
        ]
        * 2
    )
    assert sorted(tmp_path.iterdir()) == left, "its files are removed"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"repeats": 0}, "--repeats"),
        ({"sizes_bytes": (0,)}, "--size"),
        ({"threads": (0,)}, "--threads"),
        ({"threads": (257,)}, "--threads"),
        ({"memory_bytes": 100_000}, "--memory"),
        ({"disk_bytes": 100_000}, "--disk-bytes"),
    ],
)
def test_what_cannot_be_measured(change: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        replace(SMALL, **change)


def test_more_memory_than_there_is() -> None:
    with pytest.raises(ConfigError, match="are free"):
        run(SMALL, SHAPES, print, free_bytes=4 << 20)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        run(replace(SMALL, disk=tmp_path / "nowhere", threads=()), SHAPES, print)


def test_shapes_are_those_of_the_pool() -> None:
    assert pool_shapes(spec(), 32, "bfloat16") == (((2, 2, 16, 16, 2), "uint16"), ((2, 2, 8, 32, 2), "uint16")) * 3
    assert pool_shapes(spec(), 16, "int8") == (((1, 2, 16 * 36), "uint8"),) * 6
    for block_tokens, dtype, named in ((8, "int8", "--block-size"), (24, "int8", "--block-size"), (16, "x", "dtype")):
        with pytest.raises(ConfigError, match=named):
            pool_shapes(spec(), block_tokens, dtype)


def test_a_share_below_its_target_is_said() -> None:
    timings = {"plain": Timing(1.0, 1.0, 3), "slow": Timing(2.0, 2.0, 3), "fast": Timing(1.25, 1.0, 3)}
    plain, slow, fast = figures_of(timings, "plain", 1000, 1, 10, {"slow": 0.7, "fast": 0.7})
    assert (plain.share, slow.share, fast.share) == (1, 0.5, 0.8)
    assert (plain.missed, slow.missed, fast.missed) == (False, True, False)
    assert (slow.median_s, slow.bytes_per_s) == (0.2, 5000)


@pytest.mark.model
def test_the_command(smollm2_gguf: Path, tmp_path: Path) -> None:
    out = tmp_path / "kv.json"
    words = ["kv", "--size", "64KiB", "--threads", "1", "--memory", "2MiB", "--repeats", "1"]
    words += ["--model", str(smollm2_gguf), "--json", str(out)]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    result = msgspec.json.decode(out.read_bytes(), type=BenchResult)
    assert result.name == "kv" and result.config["model"] == smollm2_gguf.name and result.config["disk"] is False
    assert {figure["block_bytes"] for figure in result.measured["host"]} == {64 << 10, 360 << 10}
    assert "put" in ran.output and "360 KiB" in ran.output


@pytest.mark.parametrize(("flag", "value"), [("--threads", "two"), ("--threads", ""), ("--size", ","), ("--size", "x")])
def test_flags_that_cannot_be_read(flag: str, value: str) -> None:
    ran = CliRunner().invoke(app, ["kv", flag, value])
    assert isinstance(ran.exception, ConfigError) and flag in str(ran.exception)
