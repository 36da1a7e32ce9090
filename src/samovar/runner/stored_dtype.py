"""The dtype a checkpoint's weights are stored in, read from a safetensors header: a length in 8 bytes, then JSON."""

from __future__ import annotations

import json

from samovar.base.errors import CheckpointError
from samovar.models.checkpoint import Checkpoint

_NAMES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_LONGEST_HEADER = 100_000_000
"""The format's own limit."""


def stored_dtype(checkpoint: Checkpoint) -> str | None:
    """That of the largest tensor in the first file; None for GGUF (quantised, as a rule). Raises CheckpointError."""
    if checkpoint.format != "safetensors":
        return None
    path = next(iter(sorted(checkpoint.path.glob("*.safetensors"))), None)
    if path is None:
        raise CheckpointError(f"{checkpoint.path}: holds no .safetensors file")
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _LONGEST_HEADER:
                raise ValueError(f"it claims {length} bytes, the format allows {_LONGEST_HEADER}")
            header = json.loads(file.read(length))
        tensors = [entry for name, entry in header.items() if name != "__metadata__"]
        largest = max(tensors, key=lambda entry: entry["data_offsets"][1] - entry["data_offsets"][0])
        return _NAMES.get(largest["dtype"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CheckpointError(f"{path}: its safetensors header cannot be read: {error}") from error
