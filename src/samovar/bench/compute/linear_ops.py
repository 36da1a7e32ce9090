"""A model's linears as cases: one sweep over all of its matrices, which together are larger than a core's caches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
import torch

from samovar.bench.compute.bounds import MatrixSize, total
from samovar.bench.compute.cases import Case
from samovar.kernels.packed_ops import Format, Handle, PackedOps
from samovar.kernels.ref.records import records
from samovar.spec.model import ModelSpec

FORMATS: tuple[Format, ...] = ("bf16", "q8", "q4_0", "q4_1", "q4_k", "q6_k")
DECODE_ROWS = (1, 2, 4, 8, 16, 32, 64)
PREFILL_TOKENS = 512
SIX_BITS = 64


@dataclass(frozen=True, slots=True)
class _Linear:
    size: MatrixSize
    handle: Handle
    swiglu: bool


def linear_cases(spec: ModelSpec, ops: PackedOps, format: Format, seed: int) -> Iterator[Case]:
    """Every layer's matrices and the output head for decode rows; for prefill the layers' alone. Holds all matrices of
    one format at a time."""
    rng = np.random.default_rng(seed)
    layers = [_random(ops, format, *shape, rng) for _ in range(spec.num_layers) for shape in layer_shapes(spec)]
    head = _random(ops, format, spec.vocab_size, spec.hidden_size, False, rng)
    for rows in DECODE_ROWS:
        yield _sweep(f"linears {format}", ops, [*layers, head], rows, rng)
    yield _sweep(f"linears {format}, no head", ops, layers, PREFILL_TOKENS, rng)


def layer_shapes(spec: ModelSpec) -> list[tuple[int, int, bool]]:
    """Outputs, inputs, and whether SwiGLU follows: qkv, o, gate_up, down."""
    hidden, inner, mixed = spec.hidden_size, spec.intermediate_size, spec.num_heads * spec.head_dim
    qkv = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
    return [(qkv, hidden, False), (hidden, mixed, False), (2 * inner, hidden, True), (hidden, inner, False)]


def random_matrix(format: Format, data: NDArray[np.uint8], n: int, k: int, rng: np.random.Generator) -> None:
    """Records of finite numbers near one. Nothing subnormal: that is slow on some CPUs, and no model's weights are."""
    parts = records(format, data, n, k)
    if parts.values is not None:
        assert format == "bf16"
        bits = rng.integers(0, 1 << 16, parts.values.shape, dtype=np.uint16)
        parts.values[...] = (bits & 0x83FF) | 0x3C00  # exponents of 2^-7 to 1, either sign
        return
    quants = parts.quads if parts.quads is not None else parts.nibbles
    assert quants is not None and parts.scales is not None
    quants[...] = rng.integers(0, SIX_BITS if format == "q6_k" else 256, quants.shape, dtype=np.uint8)
    parts.scales[...] = 0.01
    if parts.minima is not None:
        parts.minima[...] = -0.055


def _random(ops: PackedOps, format: Format, n: int, k: int, swiglu: bool, rng: np.random.Generator) -> _Linear:
    # torch aligns to 64 bytes, as `matrix` wants it; numpy to 16
    data = torch.empty(ops.packed_bytes(format, n, k), dtype=torch.uint8).numpy()
    random_matrix(format, data, n, k, rng)
    return _Linear(MatrixSize(format, n, k, data.nbytes), ops.matrix(format, n, k, data), swiglu)


def _sweep(name: str, ops: PackedOps, linears: list[_Linear], rows: int, rng: np.random.Generator) -> Case:
    inputs = {size: rng.normal(size=(rows, size)).astype(np.float32) for size in {x.size.k for x in linears}}
    outputs = {
        size: np.zeros((rows, size), dtype=np.float32)
        for size in {x.size.n // 2 if x.swiglu else x.size.n for x in linears}
    }
    calls = []
    for linear in linears:
        x, n = inputs[linear.size.k], linear.size.n
        if linear.swiglu:
            calls.append(partial(ops.linear_swiglu, x, linear.handle, None, outputs[n // 2]))
        else:
            calls.append(partial(ops.linear, x, linear.handle, None, False, outputs[n]))

    def run() -> None:
        for call in calls:
            call()

    return Case(name, rows, 0, run, total([linear.size.work(rows) for linear in linears]))
