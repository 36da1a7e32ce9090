"""Tensors of a Hugging Face folder: one safetensors file, or several with an index."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
import torch
from torch import Tensor

from samovar.base.errors import CheckpointError, UnsupportedFeature
from samovar.models.weight_files import INDEX, weight_files, weight_map
from samovar.models.weights import StoredRows, TensorSource

_DTYPES = ("F32", "F16", "BF16")


@contextmanager
def open_hf_weights(folder: Path) -> Iterator[TensorSource]:
    """The files stay mapped while the context lasts."""
    with ExitStack() as stack:
        handles: dict[str, Any] = {}
        paths: dict[str, Path] = {}
        for path in weight_files(folder):
            handle = stack.enter_context(_open(path))
            for name in handle.keys():  # noqa: SIM118 - the handle is no mapping
                handles[name] = handle
                paths[name] = path
        _check_index(folder, paths)

        def label(name: str) -> str:
            return f"{paths.get(name, folder)}: tensor {name}"

        def kind_of(name: str) -> str:
            kind = str(handles[name].get_slice(name).get_dtype())
            if kind not in _DTYPES:
                raise UnsupportedFeature(f"{label(name)} is {kind}; supported: {', '.join(_DTYPES)}, or a GGUF file")
            return kind

        def read_into(name: str, out: Tensor) -> None:
            kind_of(name)
            out.copy_(handles[name].get_tensor(name))

        def stored(name: str) -> StoredRows:
            kind = kind_of(name)
            return StoredRows(kind, handles[name].get_tensor(name).contiguous().view(torch.uint8).numpy(), None)

        shapes = {name: tuple(handle.get_slice(name).get_shape()) for name, handle in handles.items()}
        yield TensorSource(shapes, label, read_into, stored)


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: not a whole safetensors file ({path.stat().st_size} bytes): {error}") from error


def _check_index(folder: Path, paths: dict[str, Path]) -> None:
    for name, file in weight_map(folder).items():
        if paths.get(name) != folder / file:
            raise CheckpointError(f"{folder / file}: tensor {name} is missing; {INDEX} says it is there")
