"""A tokenizer and its chat template as a Hugging Face folder, for tools that know only those."""

from __future__ import annotations

from collections.abc import Mapping
import json
from pathlib import Path

from samovar.base.errors import ConfigError
from samovar.base.folders import check_unused
from samovar.text.tokenizer import Tokenizer

TEMPLATE, OTHER_TEMPLATES = "chat_template.jinja", "additional_chat_templates"


def export_hf(
    tokenizer: Tokenizer, templates: Mapping[str, str], folder: Path, max_model_len: int, *, overwrite: bool = False
) -> list[Path]:
    """Writes tokenizer.json, tokenizer_config.json, special_tokens_map.json and, where there are templates by name,
    chat_template.jinja. Makes the folder and returns the files. Raises ConfigError, also for a folder that holds
    anything, unless `overwrite`: then an earlier tokenizer's templates go, and other files stay."""
    check_unused(folder, "tokenizer export", overwrite=overwrite)
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
        files[TEMPLATE] = default
        others = {name: text for name, text in templates.items() if text != default and name != "default"}
        files |= {f"{OTHER_TEMPLATES}/{name}.jinja": text for name, text in others.items()}
    written = []
    try:
        for stale in (folder / TEMPLATE, *(folder / OTHER_TEMPLATES).glob("*.jinja")):
            stale.unlink(missing_ok=True)
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
