"""Exported folders: read back by us and by transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from samovar.base.errors import ConfigError
from samovar.spec.fields import Fields
from samovar.spec.gguf_file import read_gguf_header
from samovar.text.checkpoint import TextParts, hf_templates, load_text
from samovar.text.export import export_hf
from samovar.text.gguf_tokenizer import gguf_templates, load_gguf
from samovar.text.hf_tokenizer import load_hf
from samovar.text.tokenizer import Tokenizer
from tests.text.vocabularies import TEXTS, byte_level

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def _read_back(tokenizer: Tokenizer, folder: Path) -> Tokenizer:
    export_hf(tokenizer, {}, folder, 100)
    return load_hf(folder)


@pytest.mark.parametrize("which", ["small_bpe", "small_spm"])
def test_ids_survive(which: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    tokenizer = request.getfixturevalue(which)
    again = _read_back(tokenizer, tmp_path)
    for text in TEXTS:
        for special in (False, True):
            assert again.encode(text, add_special_tokens=special) == tokenizer.encode(text, add_special_tokens=special)
        assert again.decode(tokenizer.encode(text)) == tokenizer.decode(tokenizer.encode(text))
    assert again.special_tokens == tokenizer.special_tokens
    assert again.eos_ids[0] == tokenizer.eos_ids[0]


def test_tokens_around_a_text_survive(tmp_path: Path) -> None:
    tokenizer = load_gguf(
        byte_level("gpt-2", **{"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True})
    )
    again = _read_back(tokenizer, tmp_path)
    ids = again.encode("Hello", add_special_tokens=True)
    assert ids == tokenizer.encode("Hello", add_special_tokens=True)
    assert (ids[0], ids[-1]) == (1, 2)


def test_templates(small_bpe: Tokenizer, tmp_path: Path) -> None:
    templates = {"default": TEMPLATE, "tool_use": TEMPLATE + "tools"}
    export_hf(small_bpe, templates, tmp_path, 100)
    assert hf_templates(tmp_path) == templates
    text = load_text(tmp_path)
    assert text.template is not None
    assert text.template.render([{"role": "user", "content": "é"}], add_generation_prompt=False) == "user: é\n"


def test_a_folder_that_cannot_be_made(small_bpe: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"tokenizer export .*file/x: cannot be used: Not a directory"):
        export_hf(small_bpe, {}, tmp_path / "file" / "x", 100)


def test_a_folder_that_is_not_empty_is_left_alone(small_bpe: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("weights")
    with pytest.raises(ConfigError, match=r"the folder is not empty \(it holds model.safetensors\)"):
        export_hf(small_bpe, {}, tmp_path, 100)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_overwriting_leaves_no_template_of_another_tokenizer(small_bpe: Tokenizer, tmp_path: Path) -> None:
    export_hf(small_bpe, {"default": TEMPLATE, "tool_use": TEMPLATE + "tools"}, tmp_path, 100)
    (tmp_path / "model.safetensors").write_text("weights")
    export_hf(small_bpe, {}, tmp_path, 200, overwrite=True)
    assert hf_templates(tmp_path) == {}
    assert '"model_max_length": 200' in (tmp_path / "tokenizer_config.json").read_text()
    assert (tmp_path / "model.safetensors").read_text() == "weights"


@pytest.mark.model
@pytest.mark.torch
def test_transformers_reads_smollm2(smollm2: TextParts, smollm2_gguf: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    assert smollm2.template is not None
    export_hf(
        smollm2.tokenizer,
        gguf_templates(Fields(read_gguf_header(smollm2_gguf).metadata, str(smollm2_gguf))),
        tmp_path,
        8192,
    )
    oracle: Any = AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert oracle.encode(text, add_special_tokens=False) == smollm2.tokenizer.encode(text)
        assert oracle.encode(text) == smollm2.tokenizer.encode(text, add_special_tokens=True)
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    expected = smollm2.template.render(messages, add_generation_prompt=True)
    assert oracle.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == expected
    assert oracle.eos_token_id == smollm2.tokenizer.eos_ids[0]
    assert oracle.model_max_length == 8192
