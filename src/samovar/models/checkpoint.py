"""A checkpoint on disk: where it is, what it is, and a name for its weights. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
import json
from pathlib import Path
from typing import Literal

from samovar.base.errors import CheckpointError
from samovar.models.weight_files import stored_dtype, weight_files
from samovar.spec.checkpoint import spec_from_gguf_metadata, spec_from_hf_config
from samovar.spec.dtype import DTypeName
from samovar.spec.gguf_file import GGUFHeader, read_gguf_header
from samovar.spec.model import ModelSpec

_SAMPLES = 64
_SAMPLE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`path` is a folder with config.json and safetensors, or a GGUF file."""

    path: Path
    format: Literal["safetensors", "gguf"]
    spec: ModelSpec
    header: GGUFHeader | None = field(default=None, repr=False, compare=False)
    """Of a GGUF file, with its vocabulary: read once, for spec, weights and tokenizer."""

    def weight_files(self) -> tuple[Path, ...]:
        """Raises CheckpointError when one is missing."""
        return (self.path,) if self.format == "gguf" else weight_files(self.path)

    def stored_dtype(self) -> DTypeName | None:
        """What most weights are stored in, if that can be computed in; None for GGUF (quantised, as a rule)."""
        return None if self.format == "gguf" else stored_dtype(self.weight_files()[0])

    def fingerprint(self) -> bytes:
        """32 bytes for the namespace of KV: the same across restarts and places, another for other weights.

        Covers names, sizes, config.json and 64 samples of 4 KiB of each file, ends included: milliseconds, at the
        price that a change between samples is not seen.
        """
        digest = sha256(self.format.encode())
        settings = [] if self.format == "gguf" else [self.path / "config.json"]
        for path in (*settings, *self.weight_files()):
            whole = path.suffix == ".json"
            for part in (path.name.encode(), *([path.read_bytes()] if whole else _samples(path))):
                digest.update(len(part).to_bytes(8, "little"))
                digest.update(part)
        return digest.digest()


def open_folder(folder: Path) -> Checkpoint:
    """Raises CheckpointError when it holds no readable config.json."""
    config = folder / "config.json"
    try:
        settings = json.loads(config.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{folder}: holds no config.json; a model folder needs one") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{config}: cannot be read: {error}") from error
    if not isinstance(settings, dict):
        raise CheckpointError(f"{config}: holds {type(settings).__name__}; it must be an object")
    return Checkpoint(folder, "safetensors", spec_from_hf_config(settings, str(config)))


def open_gguf(path: Path) -> Checkpoint:
    """Raises CheckpointError when it is no whole GGUF header."""
    header = read_gguf_header(path)
    spec = spec_from_gguf_metadata(header.metadata, str(path), header.tensors.keys())
    return Checkpoint(path, "gguf", spec, header)


def _samples(path: Path) -> Iterator[bytes]:
    size = path.stat().st_size
    yield size.to_bytes(8, "little")
    last = max(0, size - _SAMPLE_BYTES)
    with path.open("rb") as file:
        for index in range(_SAMPLES):
            file.seek(last * index // (_SAMPLES - 1))
            yield file.read(_SAMPLE_BYTES)
