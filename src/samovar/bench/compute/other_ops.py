"""The small ops as cases. What they touch fits a core's caches, so they have no bound: their time is what counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from samovar.bench.compute.bounds import Work
from samovar.bench.compute.cases import Case
from samovar.bench.compute.linear_ops import random_matrix
from samovar.kernels.packed_ops import Float32Array, Format, PackedOps
from samovar.models.load import new_tiled_cache
from samovar.spec.model import ModelSpec

TOKENS = (1, 64, 512)
EMBED_FORMAT: Format = "q8"


def other_cases(spec: ModelSpec, ops: PackedOps, block_tokens: int, seed: int) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    for tokens in TOKENS:
        yield _rms_norm(spec, ops, tokens, rng)
        yield _rope(spec, ops, tokens, rng)
        yield _write_kv(spec, ops, tokens, block_tokens, rng)
        yield _embed(spec, ops, tokens, rng)
        if tokens <= 64:
            yield _argmax(spec, ops, tokens, rng)


def _normal(rng: np.random.Generator, *shape: int) -> Float32Array:
    return rng.normal(size=shape).astype(np.float32)


def _rms_norm(spec: ModelSpec, ops: PackedOps, tokens: int, rng: np.random.Generator) -> Case:
    x, weight = _normal(rng, tokens, spec.hidden_size), _normal(rng, spec.hidden_size)
    out = np.empty_like(x)
    work = Work(x.nbytes + out.nbytes, {})
    return Case("rms_norm", tokens, 0, lambda: ops.rms_norm(x, weight, spec.rms_norm_eps, out), work, cached=True)


def _rope(spec: ModelSpec, ops: PackedOps, tokens: int, rng: np.random.Generator) -> Case:
    """An angle of zero: turning in place time after time must not wear the numbers out."""
    x = _normal(rng, tokens, spec.num_heads + spec.num_kv_heads, spec.head_dim)
    positions = np.arange(tokens, dtype=np.int64)
    cos = np.ones((tokens, spec.head_dim // 2), dtype=np.float32)
    sin = np.zeros_like(cos)
    return Case("rope", tokens, 0, lambda: ops.rope(x, positions, cos, sin), Work(2 * x.nbytes, {}), cached=True)


def _write_kv(spec: ModelSpec, ops: PackedOps, tokens: int, block_tokens: int, rng: np.random.Generator) -> Case:
    keys, values = new_tiled_cache(spec, -(-tokens // block_tokens), block_tokens).tiles[0]
    slots = np.arange(tokens, dtype=np.int64)
    k, v = (_normal(rng, tokens, spec.num_kv_heads, spec.head_dim) for _ in range(2))
    work = Work(k.nbytes + v.nbytes + (k.nbytes + v.nbytes) // 2, {})
    return Case("write_kv", tokens, 0, lambda: ops.write_kv(keys, values, slots, k, v), work, cached=True)


def _embed(spec: ModelSpec, ops: PackedOps, tokens: int, rng: np.random.Generator) -> Case:
    n, k = spec.vocab_size, spec.hidden_size
    data = torch.empty(ops.packed_bytes(EMBED_FORMAT, n, k), dtype=torch.uint8).numpy()
    random_matrix(EMBED_FORMAT, data, n, k, rng)
    handle, ids = ops.matrix(EMBED_FORMAT, n, k, data), rng.integers(0, n, tokens, dtype=np.int64)
    out = np.empty((tokens, k), dtype=np.float32)
    work = Work(tokens * data.nbytes // n + out.nbytes, {})
    return Case(f"embed {EMBED_FORMAT}", tokens, 0, lambda: ops.embed(handle, ids, out), work, cached=True)


def _argmax(spec: ModelSpec, ops: PackedOps, rows: int, rng: np.random.Generator) -> Case:
    logits = _normal(rng, rows, spec.vocab_size)
    index, finite = np.empty(rows, dtype=np.int32), np.empty(rows, dtype=np.bool_)
    return Case("argmax", rows, 0, lambda: ops.argmax(logits, index, finite), Work(logits.nbytes, {}), cached=True)
