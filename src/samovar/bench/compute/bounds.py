"""The least time that some work can take on a machine: its bytes over the measured bandwidth, its operations over the
measured peak, whichever is longer. No torch.

Operations count a multiplication and an addition each. Bytes are those that must come from memory once: packed weights
and KV; activations stay in caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from samovar.spec.model import ModelSpec

Kind = Literal["bf16", "int8"]
"""What is multiplied: quantised weights meet 8-bit activations; attention is bfloat16."""
KV_ELEMENT_BYTES = 2


@dataclass(frozen=True, slots=True)
class Peak:
    """Operations per second of one kind; `torch_per_s` is None where PyTorch would use another instruction set."""

    kernels_per_s: float
    """The instruction set's products from registers alone."""
    torch_per_s: float | None
    """PyTorch's matrix product."""

    @property
    def per_s(self) -> float:
        return max(self.kernels_per_s, self.torch_per_s or 0.0)


@dataclass(frozen=True, slots=True)
class MachineLimits:
    isa: str
    threads: int
    read_bytes_per_s: float
    """All threads, over `read_array_bytes`."""
    read_one_thread_bytes_per_s: float
    read_array_bytes: int
    read_again_bytes_per_s: float
    """All threads, over `read_again_array_bytes` time after time: as much as a small model's weights, of which the
    last-level cache may keep a part. For information; bounds use the other one."""
    read_again_array_bytes: int
    peaks: dict[Kind, Peak]


@dataclass(frozen=True, slots=True)
class Work:
    read_bytes: int
    operations: dict[Kind, int]

    def __add__(self, other: Work) -> Work:
        kinds = dict.fromkeys((*self.operations, *other.operations))
        joined = {kind: self.operations.get(kind, 0) + other.operations.get(kind, 0) for kind in kinds}
        return Work(self.read_bytes + other.read_bytes, joined)


@dataclass(frozen=True, slots=True)
class Bound:
    seconds: float
    by: Literal["bandwidth", "compute"]


@dataclass(frozen=True, slots=True)
class MatrixSize:
    """A packed matrix of n outputs and k inputs."""

    format: str
    """As `kernels.packed_ops` names it."""
    n: int
    k: int
    num_bytes: int

    def work(self, rows: int) -> Work:
        return Work(self.num_bytes, {kind_of(self.format): 2 * rows * self.n * self.k})


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A model's matrices as one step reads them."""

    spec: ModelSpec
    layers: tuple[tuple[MatrixSize, ...], ...]
    """Per layer: qkv, o, gate_up, down."""
    lm_head: MatrixSize


def kind_of(format: str) -> Kind:
    assert format != "f32", "no model has float32 matrices"
    return "bf16" if format == "bf16" else "int8"


def bound(work: Work, limits: MachineLimits) -> Bound:
    read_s = work.read_bytes / limits.read_bytes_per_s
    compute_s = sum(count / limits.peaks[kind].per_s for kind, count in work.operations.items())
    return Bound(read_s, "bandwidth") if read_s >= compute_s else Bound(compute_s, "compute")


def total(works: Sequence[Work]) -> Work:
    out = Work(0, {})
    for work in works:
        out = out + work
    return out


def attention_work(spec: ModelSpec, num_layers: int, start: int, tokens: int) -> Work:
    """`tokens` queries of one sequence from position `start` on: each multiplies with the keys up to its own, and adds
    up as many values. The context is read once."""
    end = start + tokens
    pairs = (end * (end + 1) - start * (start + 1)) // 2
    layer_bytes = spec.kv_bytes_per_token(KV_ELEMENT_BYTES) // spec.num_layers
    operations = 4 * pairs * spec.num_heads * spec.head_dim * num_layers
    return Work(end * layer_bytes * num_layers, {"bf16": operations})


def decode_work(size: ModelSize, rows: int, depth: int) -> Work:
    """One step of `rows` sequences, each with `depth` tokens before its new one."""
    matrices = total([matrix.work(rows) for layer in size.layers for matrix in layer])
    one = attention_work(size.spec, size.spec.num_layers, depth, 1)
    attention = Work(rows * one.read_bytes, {kind: rows * count for kind, count in one.operations.items()})
    return matrices + size.lm_head.work(rows) + attention


def prefill_work(size: ModelSize, chunks: Sequence[int]) -> Work:
    """A cold prompt in steps of these many tokens, the logits of its last one wanted. As the models do, the last layer
    computes K and V of every token, and the rest of it for the wanted one."""
    spec, out, start = size.spec, Work(0, {}), 0
    for index, tokens in enumerate(chunks):
        final = index == len(chunks) - 1
        *inner, last = size.layers
        parts = [matrix.work(tokens) for layer in inner for matrix in layer]
        parts.append(last[0].work(tokens))
        parts.append(attention_work(spec, spec.num_layers if final else spec.num_layers - 1, start, tokens))
        if final:
            parts += [matrix.work(1) for matrix in (*last[1:], size.lm_head)]
        out = total([out, *parts])
        start += tokens
    return out


def chunks_of(tokens: int, step_tokens: int) -> list[int]:
    whole, rest = divmod(tokens, step_tokens)
    return [step_tokens] * whole + ([rest] if rest else [])


def operations_of(work: Work) -> dict[Kind, int]:
    return {kind: count for kind, count in work.operations.items() if count}
