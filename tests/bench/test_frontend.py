"""`samovar bench frontend`: small runs of the real steps."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from samovar.bench.frontend import FrontendBench, Ready, run
from samovar.cli.bench import app
from samovar.cli.bench_frontend import ServedFrontEnd
from samovar.serve.prompts import Domain
from samovar.text.checkpoint import TextParts, load_text
from samovar.workload.result import BenchResult

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def parts(smollm2_gguf: Path) -> TextParts:
    return load_text(smollm2_gguf)


class Forgetful(ServedFrontEnd):
    """Reads every body as if it were the first."""

    def read(self, body: bytes) -> Ready:
        fresh = ServedFrontEnd(self.tokenizer, self.template, self.domain)
        return fresh.read(body)


def test_turns_are_what_they_claim_to_be(parts: TextParts) -> None:
    assert parts.template is not None
    template = parts.template
    bench = FrontendBench(contexts=(1024, 6000), new_tokens=300, repeats=2)
    bodies: list[bytes] = []

    class Watched(ServedFrontEnd):
        def read(self, body: bytes) -> Ready:
            bodies.append(body)
            return super().read(body)

    figures = run(bench, lambda: Watched(parts.tokenizer, template, Domain(b"b" * 16, 16)), None, lambda text: None)
    for row in figures.contexts:
        assert row.identical and row.other_ms is None
        assert row.context - 1200 < row.prompt_tokens - 300 - 150 < row.context + 200
        assert set(row.stages_ms) == {"JSON", "messages", "prompt", "request"}
        assert 0 < row.total_ms < 1.5 * sum(row.stages_ms.values())
    assert len(bodies) - len(set(bodies)) >= 2 * bench.repeats  # every measured one is read once more, by a new one


def test_what_costs_is_seen(parts: TextParts) -> None:
    """A front end that remembers nothing is as slow as one that knows nothing, and not flat."""
    assert parts.template is not None
    template = parts.template
    bench = FrontendBench(contexts=(1024, 40_000), new_tokens=100, repeats=3)

    def flatness() -> float:
        return run(
            bench, lambda: Forgetful(parts.tokenizer, template, Domain(b"b" * 16, 16)), None, lambda text: None
        ).flatness

    # About 20 where nothing else runs; a machine that stalls for milliseconds hides that, but not time and again.
    assert any(flatness() > 4 for _ in range(5))


def test_the_command(smollm2_gguf: Path, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    arguments = ["frontend", "--model", str(smollm2_gguf), "--contexts", "1024", "--repeats", "1", "--json", str(path)]
    result = CliRunner().invoke(app, [*arguments, "--no-transformers"])
    assert result.exit_code == 0, result.output
    written = msgspec.json.decode(path.read_bytes(), type=BenchResult)
    assert written.name == "frontend" and written.measured["contexts"][0]["identical"] is True
    for wrong, word in ((["--contexts", "1k"], "--contexts"), (["--repeats", "0"], "--repeats")):
        failed = CliRunner().invoke(app, ["frontend", *wrong])
        assert failed.exit_code != 0 and word in str(failed.exception)


@pytest.mark.torch
def test_transformers_gives_the_same_ids(parts: TextParts) -> None:
    from samovar.cli.bench_frontend import transformers_encoder

    encode = transformers_encoder(parts.tokenizer)
    for text in ("<|im_start|>user\nnaïve  é\r\n\x00<|im_end|>\n", "", "👍 12 345\n\n  x"):
        assert list(encode(text)) == parts.tokenizer.encode(text)
