"""Reports on the harness's artifacts: the ceiling of the prompts it sent, or why it is not that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from samovar.base.errors import CheckpointError, ConfigError
from samovar.bench.agentx_tokens import NOT_COUNTED, tokeniser
from samovar.bench.replay_files import ReplaySource
from samovar.text.gguf_tokenizer import load_gguf
from samovar.workload.metrics_agentx import EXPORT, SUMMARY
from samovar.workload.metrics_agentx_prompts import RAW
from samovar.workload.report_data import ReportRun
from tests.text.vocabularies import byte_level
from tests.workload.agentx_artifacts import artifacts, raw, tell_block_size, write_lines

TEMPLATE = "{% for m in messages %}|{{ m.content }}{% endfor %}"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Artifacts and their tokenizer: a token per letter, and one per message."""
    found = artifacts(tmp_path)
    tell_block_size(found, 2)
    folder = tmp_path / "tokenizer"
    spaces_only = byte_level(**{"tokenizer.ggml.merges": ["Ġ Ġ"]})
    load_gguf(spaces_only)._backend.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return found


def by_the_harness(run: ReportRun) -> bool:
    return run.facts["ceiling"] == "the harness's theoretical rate" and run.points[0].hit_ceiling == 5 / 7


@pytest.mark.parametrize("named", ["", EXPORT])
def test_the_ceiling_is_of_the_prompts_that_were_sent(out: Path, named: str) -> None:
    run = ReplaySource(out / named).read()
    assert run.facts["ceiling"] == "of the prompts sent, in blocks of 2 tokens"
    assert [(r.planned_prompt_tokens, r.ceiling_tokens) for r in run.records] == [(5, 0), (7, 4), (8, 6), (2, 0)]
    assert (run.points[0].hit_ceiling, run.points[0].prompt_drift) == (10 / 15, 0.0)
    assert NOT_COUNTED not in run.facts


def test_a_server_counts_a_whole_chat_in_one(out: Path) -> None:
    tokenise = tokeniser(out.parent / "tokenizer")
    chat = [{"role": "system", "content": "ab"}, {"role": "user", "content": "c|"}]
    a, b, c, bar = (tokenise([{"role": "user", "content": letter}])[1] for letter in "abc|")
    assert list(tokenise(chat)) == [bar, a, b, bar, c, bar]


def test_without_prompts_no_tokenizer_is_asked_for(out: Path) -> None:
    (out / RAW).unlink()
    (out.parent / "tokenizer" / "tokenizer.json").write_text("{")
    run = ReplaySource(out).read()
    assert by_the_harness(run) and NOT_COUNTED not in run.facts


def test_a_tokenizer_that_is_gone_is_told(out: Path) -> None:
    (out.parent / "tokenizer").rename(out.parent / "elsewhere")
    run = ReplaySource(out).read()
    assert by_the_harness(run)
    assert run.facts[NOT_COUNTED] == "the tokenizer that the harness was run with is no folder that is still there"


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("tokenizer.json", "{", "tokenizer.json"),
        ("chat_template.jinja", "{% if %}", "does not compile"),
        ("chat_template.jinja", None, "has no chat template, and the harness sends chats"),
        ("chat_template.jinja", "{{ raise_exception('no') }}", "the chat template refused them: no"),
    ],
)
def test_a_tokenizer_of_no_use_is_told(out: Path, name: str, content: str | None, told: str) -> None:
    file = out.parent / "tokenizer" / name
    file.unlink() if content is None else file.write_text(content)
    run = ReplaySource(out).read()
    assert by_the_harness(run) and told in run.facts[NOT_COUNTED]


def test_raw_records_that_end_in_the_middle_are_told(out: Path) -> None:
    write_lines(out / RAW, [raw("w", 0, "abcd")])
    with (out / RAW).open("a") as file:
        file.write('{"metadata": {"x_req')
    run = ReplaySource(out).read()
    assert by_the_harness(run) and f"{RAW}, line 2: not a raw record" in run.facts[NOT_COUNTED]


def test_records_that_cannot_be_read_are_an_error_all_the_same(out: Path) -> None:
    (out / EXPORT).write_text('{"metadata": {}}')
    with pytest.raises(ConfigError, match=f"{EXPORT}, line 1: not a record of the harness"):
        ReplaySource(out).read()


def test_a_tokenizer_of_the_hub_is_not_fetched(out: Path) -> None:
    summary = json.loads((out / SUMMARY).read_text())
    summary["input_config"]["tokenizer"]["name"] = "org/model"
    (out / SUMMARY).write_text(json.dumps(summary))
    assert NOT_COUNTED in ReplaySource(out).read().facts


def test_a_tokenizer_without_a_template_is_an_error_of_its_own(out: Path) -> None:
    folder = out.parent / "tokenizer"
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(CheckpointError, match=f"{folder}: has no chat template"):
        tokeniser(folder)
