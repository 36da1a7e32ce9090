"""Flags, their refusals, and the values that are read from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import os
from pathlib import Path
import re
import socket
import subprocess
import sys

import pytest

from samovar.base.errors import ConfigError
from samovar.base.units import parse_bytes
from samovar.cli import serve as serve_module
from samovar.cli.arguments import spread_lists
from samovar.cli.main import main
from samovar.cli.surroundings import instruction_set


@dataclass(frozen=True)
class Run:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def samovar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """The command line in this process: a new interpreter for each refusal would take most of a second."""

    def run(*arguments: str) -> Run:
        monkeypatch.setattr(sys, "argv", ["samovar", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return Run(int(ended.value.code or 0), shown.out, shown.err)

    return run


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        (["serve", "m", "--served-model-name", "a", "b"],
         ["serve", "m", "--served-model-name", "a", "--served-model-name", "b"]),
        (["serve", "--api-key", "k1", "k2", "--port", "1"],
         ["serve", "--api-key", "k1", "--api-key", "k2", "--port", "1"]),
        (["serve", "--port", "1", "m"], ["serve", "--port", "1", "m"]),
        (["serve", "--served-model-name", "a", "--served-model-name", "b"],
         ["serve", "--served-model-name", "a", "--served-model-name", "b"]),
    ],
)  # fmt: skip
def test_lists_in_vllms_way(given: list[str], parsed: list[str]) -> None:
    assert spread_lists(given) == parsed


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1000", 1000),
        ("1KiB", 1024),
        ("4 GiB", 4 << 30),
        ("512MB", 512 * 10**6),
        ("1.5g", 1_500_000_000),
        ("2mib", 2 << 20),
    ],
)
def test_sizes_with_units(text: str, size: int) -> None:
    assert parse_bytes(text, "--x") == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "0", "4GiBs", "nan", "inf", "1e99", "four"])
def test_sizes_that_are_none_name_the_flag(text: str) -> None:
    with pytest.raises(ConfigError, match="--kv-cache-memory-bytes"):
        parse_bytes(text, "--kv-cache-memory-bytes")


@pytest.mark.parametrize(("value", "isa"), [(None, "auto"), ("", "auto"), ("avx2", "avx2")])
def test_the_instruction_set_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, value: str | None, isa: str
) -> None:
    monkeypatch.delenv("SAMOVAR_ISA", raising=False)
    if value is not None:
        monkeypatch.setenv("SAMOVAR_ISA", value)
    assert instruction_set() == isa


def test_version_and_help(samovar: Callable[..., Run]) -> None:
    assert samovar("--version").stdout.startswith("samovar ")


@pytest.mark.parametrize("columns", [80, 120])
def test_help_shows_every_flag_whole(columns: int) -> None:
    env = {**os.environ, "COLUMNS": str(columns)}
    command = [sys.executable, "-m", "samovar.cli.main", "serve", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, env=env, check=True).stdout
    source = Path(serve_module.__file__).read_text()
    names = re.findall(r"^    (\w+): Annotated\[", source, re.M)
    flags = {"--" + name.replace("_", "-") for name in names} - {"--model"}
    assert len(flags) > 20 and not {flag for flag in flags if flag not in shown}
    if columns >= 100:
        assert all(panel in shown for panel in ("Model", "KV cache", "Scheduling", "Server", "Debugging"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve", "--no-such-flag"], ["--no-such-flag"]),
        (["serve", "--api-key"], ["--api-key", "needs a value"]),
        (["serve", "--served-model-name", "--port", "0"], ["--served-model-name", "needs a value"]),
        (["serve", "--num-threads", "0"], ["--num-threads", "1"]),
        (["serve", "--max-num-seqs", "many"], ["--max-num-seqs", "integer"]),
        (["serve", "--max-num-seqs", "0"], ["--max-num-seqs", "0", "1"]),
        (["serve", "--dtype", "int3"], ["--dtype", "int3", "bfloat16"]),
        (["serve", "--quantization", "awq"], ["--quantization", "awq", "int8"]),
        (["serve", "--kv-cache-dtype", "fp8"], ["--kv-cache-dtype", "fp8", "bfloat16"]),
        (["serve", "--kv-cache-memory-bytes", "lots"], ["--kv-cache-memory-bytes", "lots"]),
        (["serve", "--kv-cache-memory-bytes", "1GiB", "--num-gpu-blocks-override", "9"], ["no effect"]),
        (["serve", "--max-num-queued-reqs-per-tenant", "9"], ["--max-num-queued-reqs-per-tenant 9", "--api-key"]),
        (["serve", "--max-num-queued-tokens-per-tenant", "9"], ["--max-num-queued-tokens-per-tenant", "--api-key"]),
        (["serve", "--api-key", "k", "--max-num-queued-reqs", "4", "--max-num-queued-reqs-per-tenant", "5"],
         ["no effect", "max_num_queued_reqs 4"]),
        (["serve", "--port", "99999"], ["--port", "99999"]),
        (["serve", "--port", "0", "missing/model.gguf"], ["missing/model.gguf"]),
        (["serve", "--port", "0", "--max-num-seqs", "1", "--prefill-schedule-interval", "4"],
         ["no effect", "interval"]),
        (["serve", "--port", "0", "--max-num-batched-tokens", "512", "--long-prefill-token-threshold", "512"],
         ["no effect", "512"]),
        (["serve", "--retention-policy", "magic"], ["magic", "lru"]),
        (["bench", "core", "--requests", "0"], ["--requests"]),
        (["nonsense"], ["nonsense"]),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_the_reason(
    samovar: Callable[..., Run], arguments: list[str], words: list[str]
) -> None:
    run = samovar(*arguments)
    assert run.returncode == 2
    said = " ".join(run.stderr.split())
    assert all(word in said for word in words), said
    assert "Traceback" not in run.stderr


@pytest.mark.model
@pytest.mark.torch
def test_a_truncated_gguf_is_named(samovar: Callable[..., Run], tmp_path: Path, smollm2_gguf: Path) -> None:
    cut = tmp_path / "cut.gguf"
    with smollm2_gguf.open("rb") as file:
        cut.write_bytes(file.read(3_000_000))
    run = samovar("serve", "--port", "0", str(cut))
    assert run.returncode == 2 and "cut.gguf" in run.stderr and "Traceback" not in run.stderr


def test_a_taken_port_is_named_at_once(samovar: Callable[..., Run]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run = samovar("serve", "--port", str(port))
    assert run.returncode == 2
    assert "127.0.0.1" in run.stderr and str(port) in run.stderr and "Traceback" not in run.stderr


def test_chat_without_a_server_says_what_to_do(samovar: Callable[..., Run]) -> None:
    run = samovar("chat", "--url", "http://127.0.0.1:9/v1", "hello")
    assert run.returncode == 2 and "samovar serve" in run.stderr
