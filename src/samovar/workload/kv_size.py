"""How many bytes of KV cache a token takes in a model."""

from __future__ import annotations

from dataclasses import dataclass
import json
from pathlib import Path

from samovar.base.errors import CheckpointError, ConfigError
from samovar.spec.checkpoint import spec_from_gguf_metadata, spec_from_hf_config
from samovar.spec.gguf_file import read_gguf_header

DEFAULT_MODEL = "llama-3.1-70b"

_ELEMENTS = {
    # K and V: 2 x layers x KV heads x head dimension, from each model's published config.json.
    "smollm2-135m": 2 * 30 * 3 * 64,
    "llama-3.1-8b": 2 * 32 * 8 * 128,
    "llama-3.1-70b": 2 * 80 * 8 * 128,
    "llama-3.1-405b": 2 * 126 * 8 * 128,
    "qwen3-8b": 2 * 36 * 8 * 128,
    "qwen3-32b": 2 * 64 * 8 * 128,
    "qwen3-coder-480b": 2 * 62 * 8 * 128,
    # Latent attention keeps one vector of 512 + 64 per layer.
    "deepseek-v3": 61 * (512 + 64),
    "kimi-k2": 61 * (512 + 64),
}


@dataclass(frozen=True, slots=True)
class KVSize:
    name: str
    bytes_per_token: int

    def bytes_for(self, tokens: int) -> int:
        return tokens * self.bytes_per_token


def known_kv_size(name: str, element_bytes: int = 2) -> KVSize:
    """Raises ConfigError listing the known names."""
    elements = _ELEMENTS.get(name.lower())
    if elements is None:
        raise ConfigError(f"--model {name}: not a checkpoint and not one of {', '.join(sorted(_ELEMENTS))}")
    return KVSize(name.lower(), elements * element_bytes)


def kv_size_of(model: str, element_bytes: int = 2) -> KVSize:
    """Of a checkpoint (a Hugging Face folder, its config.json or a .gguf file), or of a model known by name. Raises
    ConfigError, CheckpointError or UnsupportedFeature."""
    path = Path(model)
    if not path.exists():
        return known_kv_size(model, element_bytes)
    if path.suffix == ".gguf":
        header = read_gguf_header(path)
        spec = spec_from_gguf_metadata(header.metadata, str(path), header.tensors.keys())
    else:
        config = path / "config.json" if path.is_dir() else path
        try:
            settings = json.loads(config.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{config}: not readable as JSON: {error}") from None
        if not isinstance(settings, dict):
            raise CheckpointError(f"{config}: holds a {type(settings).__name__}, expected an object")
        spec = spec_from_hf_config(settings, str(config))
    return KVSize(path.name, spec.kv_bytes_per_token(element_bytes))
