"""Tokenizers from Hugging Face folders in all the forms their files come in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from samovar.base.errors import CheckpointError
from samovar.text.gguf_tokenizer import load_gguf
from samovar.text.hf_tokenizer import load_hf
from tests.text.vocabularies import TEXTS, byte_level, sentencepiece


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    load_gguf(byte_level())._backend.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def _write(folder: Path, name: str, value: Any) -> None:
    (folder / name).write_text(json.dumps(value), encoding="utf-8")


def test_a_folder_gives_the_ids_of_its_tokenizer_json(folder: Path) -> None:
    tokenizer, origin = load_hf(folder), load_gguf(byte_level())
    for text in TEXTS:
        assert tokenizer.encode(text) == origin.encode(text)
    assert (tokenizer.eos_ids, tokenizer.special_tokens) == ((), {})


def test_a_sentencepiece_folder(tmp_path: Path) -> None:
    load_gguf(sentencepiece())._backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_hf(tmp_path)
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text, allow_special=False)) == text


@pytest.mark.parametrize("form", ["<|im_end|>", {"content": "<|im_end|>", "lstrip": False}])
@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
def test_every_spelling_of_eos(folder: Path, file: str, form: object) -> None:
    _write(folder, file, {"eos_token": form, "bos_token": None})
    tokenizer = load_hf(folder)
    assert (tokenizer.special_tokens, tokenizer.eos_ids) == ({"eos_token": "<|im_end|>"}, (2,))


@pytest.mark.parametrize(("listed", "expected"), [(0, (2, 0)), ([0, 2], (2, 0)), ([2], (2,)), (None, (2,)), ([], (2,))])
def test_generation_config_adds_eos_ids(folder: Path, listed: object, expected: tuple[int, ...]) -> None:
    _write(folder, "tokenizer_config.json", {"eos_token": "<|im_end|>"})
    _write(folder, "generation_config.json", {"eos_token_id": listed})
    assert load_hf(folder).eos_ids == expected


@pytest.mark.parametrize("listed", ["x", [-1], [True], {"a": 1}, 1.5])
def test_nonsense_in_generation_config_is_named(folder: Path, listed: object) -> None:
    _write(folder, "generation_config.json", {"eos_token_id": listed})
    with pytest.raises(CheckpointError, match=r"generation_config\.json: eos_token_id is"):
        load_hf(folder)


def test_bos_follows_the_configuration(folder: Path) -> None:
    _write(folder, "tokenizer_config.json", {"bos_token": "<|im_start|>", "add_bos_token": True})
    assert load_hf(folder).encode("a", add_special_tokens=True)[0] == 1
    _write(folder, "tokenizer_config.json", {"bos_token": "<|im_start|>", "add_bos_token": False})
    assert load_hf(folder).encode("a", add_special_tokens=True)[0] != 1


def test_bos_follows_the_post_processor(folder: Path) -> None:
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}},
    }
    content["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    path.write_text(json.dumps(content), encoding="utf-8")
    tokenizer = load_hf(folder)
    assert tokenizer.encode("a", add_special_tokens=True) == [1, *tokenizer.encode("a")]
    assert tokenizer.decode(tokenizer.encode("a long text, cut by nobody")) == "a long text, cut by nobody"
    _write(folder, "tokenizer_config.json", {"bos_token": "<|im_start|>", "add_bos_token": False})
    assert load_hf(folder).encode("a", add_special_tokens=True) == tokenizer.encode("a")


def test_tokens_only_the_configuration_knows(folder: Path) -> None:
    size = load_hf(folder).vocab_size
    extra = {
        str(size): {"content": "<think>", "special": False, "normalized": False},
        str(size + 1): {"content": "<|pad|>", "special": True, "normalized": False},
    }
    _write(
        folder, "tokenizer_config.json", {"added_tokens_decoder": extra, "pad_token": "<|pad|>", "unk_token": "nowhere"}
    )
    tokenizer = load_hf(folder)
    assert tokenizer.encode("<think><|pad|>") == [size, size + 1]
    assert tokenizer.decode([size, size + 1]) == "<think>"
    assert tokenizer.vocab_size == size + 2
    assert tokenizer._backend.token_to_id("nowhere") is None


def test_an_id_that_cannot_be_had_is_named(folder: Path) -> None:
    size = load_hf(folder).vocab_size
    _write(folder, "tokenizer_config.json", {"added_tokens_decoder": {str(size + 5): {"content": "<late>"}}})
    with pytest.raises(CheckpointError, match=rf"'<late>' should have id {size + 5}"):
        load_hf(folder)


def test_missing_and_malformed_files_are_named(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(CheckpointError, match=r"empty.*tokenizer\.json"):
        load_hf(empty)
    (empty / "tokenizer.json").write_text('{"model": ', encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: not a readable tokenizer"):
        load_hf(empty)
    for text in ("{", "[]", '{"added_tokens_decoder": {"x": {}}}', '{"added_tokens_decoder": [1]}'):
        (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
        with pytest.raises(CheckpointError, match=r"tokenizer_config\.json"):
            load_hf(folder)
