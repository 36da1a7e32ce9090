"""Tokenizer and chat template of a checkpoint: a Hugging Face folder or a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from samovar.base.errors import CheckpointError, ConfigError
from samovar.spec.fields import Fields
from samovar.spec.gguf_file import GGUFHeader, read_gguf_header
from samovar.text.gguf_tokenizer import gguf_templates, load_gguf
from samovar.text.hf_tokenizer import load_hf, read_json
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TextParts:
    """`template` is None for a checkpoint without one: it can complete text, not chat."""

    tokenizer: Tokenizer
    template: ChatTemplate | None


def load_text(
    path: Path,
    clock: Callable[[], datetime] | None = None,
    template_file: Path | None = None,
    header: GGUFHeader | None = None,
) -> TextParts:
    """`path`: a folder with tokenizer.json, or a .gguf file, whose `header` spares reading it again. `template_file`
    takes the place of the checkpoint's own chat template; `clock` is what its `strftime_now` reads.

    Raises CheckpointError and UnsupportedFeature as the loaders do, and ConfigError for an unreadable template file.
    """
    if path.is_dir():
        tokenizer, sources = load_hf(path), hf_templates(path)
    elif path.exists():
        metadata = Fields((header or read_gguf_header(path)).metadata, str(path))
        tokenizer, sources = load_gguf(metadata), gguf_templates(metadata)
    else:
        raise CheckpointError(f"{path}: no such file or folder")
    origin = path
    if template_file is not None:
        sources, origin = {"default": _override(template_file)}, template_file
    if not sources:
        return TextParts(tokenizer, None)
    return TextParts(tokenizer, ChatTemplate(sources, tokenizer.special_tokens, clock, str(origin)))


def hf_templates(folder: Path) -> dict[str, str]:
    """Chat templates by name. A file of its own takes precedence over tokenizer_config.json, as in transformers."""
    found = {
        **_declared(read_json(folder / "chat_template.json")),
        **_declared(read_json(folder / "tokenizer_config.json")),
    }
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[path.stem] = _read(path)
    main = folder / "chat_template.jinja"
    if main.is_file():
        found["default"] = _read(main)
    return found


def _declared(config: Mapping[str, Any]) -> dict[str, str]:
    """`chat_template` as a string, or as a list of {"name", "template"}."""
    value = config.get("chat_template")
    if isinstance(value, str):
        return {"default": value}
    entries = value if isinstance(value, list) else []
    return {
        entry["name"]: entry["template"]
        for entry in entries
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str) and isinstance(entry.get("template"), str)
    }


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not readable as text: {error}") from error


def _override(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"--chat-template {path}: not readable as text: {error}") from error
