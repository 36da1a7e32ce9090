"""Which safetensors files a folder's weights are, and what they are stored in. No torch.

One answer for whoever reads, names or measures the weights: a folder may hold other formats of them beside.
"""

from __future__ import annotations

import json
from pathlib import Path

from samovar.base.errors import CheckpointError
from samovar.spec.dtype import DTypeName

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_STORED: dict[str, DTypeName] = {"F32": "float32", "BF16": "bfloat16"}
_LONGEST_HEADER = 100_000_000
"""The format's own limit."""


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The files the index names, else the single one. Raises CheckpointError when one is missing or lies elsewhere."""
    if (folder / INDEX).is_file():
        names = sorted(set(weight_map(folder).values()))
        if not names:
            raise CheckpointError(f"{folder / INDEX}: field weight_map names no file")
        for name in names:
            if not (folder / name).is_file():
                raise CheckpointError(f"{folder / name}: this shard is missing; {INDEX} names it")
        return tuple(folder / name for name in names)
    if (folder / SINGLE).is_file():
        return (folder / SINGLE,)
    raise CheckpointError(f"{folder}: holds neither {SINGLE} nor {INDEX}; only safetensors and GGUF weights are read")


def weight_map(folder: Path) -> dict[str, str]:
    """The index: tensors to the names of files beside it; {} without one."""
    index = folder / INDEX
    try:
        entries = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        found = {str(tensor): str(file) for tensor, file in entries.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{index}: field weight_map cannot be read: {error!r}") from error
    for tensor, file in found.items():
        # The name is a stranger's: it must not lead out of the folder.
        if any(char in file for char in "/\\\0") or file in ("", ".", ".."):
            raise CheckpointError(
                f"{index}: field weight_map puts tensor {tensor} into {file!r}; it must be the name of a file beside it"
            )
    return found


def stored_dtype(path: Path) -> DTypeName | None:
    """That of the largest tensor of a safetensors file, from its header (a length in 8 bytes, then JSON); None for one
    that nothing is computed in. Raises CheckpointError."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _LONGEST_HEADER:
                raise ValueError(f"it claims {length} bytes, the format allows {_LONGEST_HEADER}")
            header = json.loads(file.read(length))
        tensors = [entry for name, entry in header.items() if name != "__metadata__"]
        largest = max(tensors, key=lambda entry: entry["data_offsets"][1] - entry["data_offsets"][0])
        return _STORED.get(largest["dtype"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CheckpointError(f"{path}: its safetensors header cannot be read: {error}") from error
