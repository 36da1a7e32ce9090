"""Tensors of a GGUF file, dequantised.

llama.cpp rotates neighbouring dimensions, transformers dimension i with i + D/2. Files of the "llama" architecture
therefore hold the rows of q and k permuted; they are put back here, so the model knows one layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import math
from pathlib import Path

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
import numpy as np
from numpy.typing import NDArray
import torch
from torch import Tensor

from samovar.base.errors import CheckpointError, UnsupportedFeature
from samovar.models.weights import ROPE_FACTORS, StoredRows, TensorSource
from samovar.spec.gguf_file import GGUFHeader, GGUFTensor
from samovar.spec.model import ModelSpec

_OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "rope_freqs.weight": ROPE_FACTORS,
}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_PART_ELEMENTS = 1 << 20
"""Dequantised at a time: the temporaries stay in the cache."""


@contextmanager
def open_gguf_weights(path: Path, header: GGUFHeader, spec: ModelSpec) -> Iterator[TensorSource]:
    """The file stays mapped while the context lasts. Raises CheckpointError when it is shorter than its header says."""
    sizes = {name: _stored_bytes(path, tensor) for name, tensor in header.tensors.items()}
    ends = [tensor.offset + sizes[name] for name, tensor in header.tensors.items()]
    expected_bytes = max(ends, default=0)
    actual_bytes = path.stat().st_size
    if actual_bytes < expected_bytes:
        raise CheckpointError(f"{path}: truncated: {actual_bytes} bytes, its header asks for {expected_bytes}")
    data = np.memmap(path, mode="r", dtype=np.uint8)
    by_name = {hf_name(name): tensor for name, tensor in header.tensors.items()}

    def read_into(name: str, out: Tensor) -> None:
        tensor = by_name[name]
        heads = _permuted_heads(spec, name)
        stored = data[tensor.offset : tensor.offset + sizes[tensor.name]]
        target = torch.empty(out.shape, dtype=torch.float32) if heads else out
        _dequantise(stored, tensor, target)
        if heads:
            out.copy_(_unpermute(target, heads))

    def stored(name: str) -> StoredRows:
        tensor = by_name[name]
        bytes_ = data[tensor.offset : tensor.offset + sizes[tensor.name]]
        heads = _permuted_heads(spec, name)
        # the plain array: nobody asks a memory map for what makes it one, and asking costs
        rows = np.asarray(bytes_).reshape(tensor.shape[0], -1)
        kind = GGMLQuantizationType(tensor.ggml_type).name
        return StoredRows(kind, rows, _unpermuted_order(tensor.shape[0], heads) if heads else None)

    shapes = {name: tensor.shape for name, tensor in by_name.items()}
    yield TensorSource(shapes, lambda name: f"{path}: tensor {gguf_name(name)}", read_into, stored)


def hf_name(name: str) -> str:
    """A name that is not known comes back as it is, to be refused as unexpected."""
    if name in _OUTER:
        return _OUTER[name]
    block, _, rest = name.partition(".")
    layer, _, rest = rest.partition(".")
    part, _, kind = rest.partition(".")
    if block == "blk" and part in _INNER:
        return f"model.layers.{layer}.{_INNER[part]}.{kind}"
    return name


def gguf_name(name: str) -> str:
    """The inverse of `hf_name`."""
    for own, other in _OUTER.items():
        if other == name:
            return own
    stem, _, kind = name.rpartition(".")
    prefix, _, rest = stem.partition("layers.")
    layer, _, inner = rest.partition(".")
    for own, other in _INNER.items():
        if prefix == "model." and other == inner:
            return f"blk.{layer}.{own}.{kind}"
    return name


def _stored_bytes(path: Path, tensor: GGUFTensor) -> int:
    try:
        kind = GGMLQuantizationType(tensor.ggml_type)
    except ValueError:
        raise UnsupportedFeature(
            f"{path}: tensor {tensor.name} has quantisation type {tensor.ggml_type}, which is unknown"
        ) from None
    block_elements, block_bytes = GGML_QUANT_SIZES[kind]
    if not tensor.shape or tensor.shape[-1] % block_elements:
        raise CheckpointError(
            f"{path}: tensor {tensor.name} has shape {list(tensor.shape)}; its rows must be whole {kind.name} blocks"
            f" of {block_elements}"
        )
    _refuse_kind_without_dequantiser(path, tensor.name, kind)
    return int(math.prod(tensor.shape) // block_elements * block_bytes)


def _refuse_kind_without_dequantiser(path: Path, name: str, kind: GGMLQuantizationType) -> None:
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), dtype=np.uint8), kind)
    except NotImplementedError:
        raise UnsupportedFeature(
            f"{path}: tensor {name} has quantisation type {kind.name}, which is not supported"
        ) from None


def _dequantise(stored: NDArray[np.uint8], tensor: GGUFTensor, out: Tensor) -> None:
    """Some rows at a time, each converted to `out`'s dtype while it is in the cache."""
    kind = GGMLQuantizationType(tensor.ggml_type)
    columns = tensor.shape[-1]
    rows = stored.reshape(math.prod(tensor.shape[:-1]), -1)
    target = out.view(rows.shape[0], columns)
    step = max(1, _PART_ELEMENTS // columns)
    for low in range(0, rows.shape[0], step):
        # copied first: the map is read-only, which torch warns of, and may be unaligned
        values = dequantize(np.array(rows[low : low + step]), kind)
        target[low : low + step] = torch.from_numpy(values)


def _permuted_heads(spec: ModelSpec, name: str) -> int:
    """How many heads' rows the file holds permuted in this tensor; 0 when none."""
    if spec.architecture != "llama":
        return 0
    if ".self_attn.q_proj." in name:
        return spec.num_heads
    return spec.num_kv_heads if ".self_attn.k_proj." in name else 0


def _unpermute(rows: Tensor, heads: int) -> Tensor:
    half = rows.shape[0] // heads // 2
    return rows.view(heads, half, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def _unpermuted_order(num_rows: int, heads: int) -> NDArray[np.int32]:
    """Which row of the file each row of the matrix is, as `_unpermute` moves them."""
    halves = np.arange(num_rows, dtype=np.int32).reshape(heads, num_rows // heads // 2, 2)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(-1)
