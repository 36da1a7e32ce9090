"""A tokenizer and its chat template as a Hugging Face folder, for tools that know only those."""

from __future__ import annotations

from collections.abc import Mapping
import json
from pathlib import Path

from samovar.base.errors import ConfigError
from samovar.text.tokenizer import Tokenizer


def export_hf(tokenizer: Tokenizer, templates: Mapping[str, str], folder: Path, max_model_len: int) -> list[Path]:
    """Writes tokenizer.json, tokenizer_config.json, special_tokens_map.json and, where there are templates by name,
    chat_template.jinja. Makes the folder, overwrites the files and returns them. Raises ConfigError."""
    special = dict(tokenizer.special_tokens)
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_model_len,
        "clean_up_tokenization_spaces": False,
        **special,
    }
    files = {
        "tokenizer.json": tokenizer.to_json(),
        "tokenizer_config.json": _text(config),
        "special_tokens_map.json": _text(special),
    }
    if templates:
        default = templates.get("default") or next(iter(templates.values()))
        files["chat_template.jinja"] = default
        others = {name: text for name, text in templates.items() if text != default and name != "default"}
        files |= {f"additional_chat_templates/{name}.jinja": text for name, text in others.items()}
    written = []
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise ConfigError(f"cannot write the tokenizer to {folder}: {error.strerror or error}") from None
    return written


def _text(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
