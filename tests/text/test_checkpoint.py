"""Where tokenizer and chat template of a checkpoint are found."""

from __future__ import annotations

from datetime import datetime
import json
from pathlib import Path

import pytest

from samovar.base.errors import CheckpointError, ConfigError
from samovar.text.checkpoint import TextParts, hf_templates, load_text
from samovar.text.gguf_tokenizer import load_gguf
from tests.text.vocabularies import byte_level

USER = [{"role": "user", "content": "hi"}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    load_gguf(byte_level())._backend.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def _config(folder: Path, template: object) -> None:
    config = {"eos_token": "<|im_end|>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def _render(parts: TextParts, **options: object) -> str:
    assert parts.template is not None
    return parts.template.render(USER, **options)


def test_a_folder_without_a_template(folder: Path) -> None:
    assert load_text(folder).template is None


def test_the_template_of_the_configuration(folder: Path) -> None:
    _config(folder, "{{ messages[0].content }}{{ eos_token }}")
    assert _render(load_text(folder)) == "hi<|im_end|>"


def test_named_templates_of_the_configuration(folder: Path) -> None:
    _config(folder, [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}, {"name": 3}, "x"])
    parts = load_text(folder)
    assert (_render(parts), _render(parts, tools=[{}])) == ("d", "t")


def test_files_take_precedence(folder: Path) -> None:
    _config(folder, [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}])
    (folder / "chat_template.json").write_text('{"chat_template": "json"}', encoding="utf-8")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("r", encoding="utf-8")
    assert hf_templates(folder) == {"default": "d", "tool_use": "t", "rag": "r"}
    (folder / "chat_template.jinja").write_text("file", encoding="utf-8")
    assert hf_templates(folder)["default"] == "file"


def test_a_template_given_by_the_user(folder: Path) -> None:
    _config(folder, "d")
    own = folder / "own.jinja"
    own.write_text("{{ strftime_now('%Y') }}", encoding="utf-8")
    assert _render(load_text(folder, clock=lambda: datetime(2031, 1, 1), template_file=own)) == "2031"
    with pytest.raises(ConfigError, match=r"--chat-template .*absent\.jinja"):
        load_text(folder, template_file=folder / "absent.jinja")
    own.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"own\.jinja: not readable as text"):
        load_text(folder, template_file=own)
    own.write_text("{% if %}", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"own\.jinja.*does not compile"):
        load_text(folder, template_file=own)


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere\.gguf: no such file"):
        load_text(tmp_path / "nowhere.gguf")
