"""Attention as cases: one sweep over all layers, each with its own pool, as in a step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from samovar.bench.compute.bounds import Work, attention_work
from samovar.bench.compute.cases import Case
from samovar.bench.compute.setting import fill
from samovar.kernels.packed_ops import PackedOps
from samovar.kernels.rows import make_rows
from samovar.models.batch import KVCache
from samovar.models.load import new_tiled_cache
from samovar.spec.model import ModelSpec

DECODE = ((1, 512), (8, 512), (1, 4096), (8, 4096))
"""Rows and depth."""
PREFILL = ((512, 0), (512, 3584))
"""Tokens and where the first of them stands."""


def attention_cases(spec: ModelSpec, ops: PackedOps, block_tokens: int, seed: int) -> Iterator[Case]:
    per_row = -(-(max(depth for _, depth in DECODE) + 1) // block_tokens)
    cache = new_tiled_cache(spec, max(rows for rows, _ in DECODE) * per_row, block_tokens)
    fill(cache, seed)
    for rows, depth in DECODE:
        yield _case("attention, decode", spec, ops, cache, [1] * rows, depth, seed)
    for tokens, start in PREFILL:
        yield _case("attention, prefill", spec, ops, cache, [tokens], start, seed)


def _case(op: str, spec: ModelSpec, ops: PackedOps, cache: KVCache, counts: list[int], start: int, seed: int) -> Case:
    per_row = -(-(start + counts[0]) // cache.block_tokens)
    tables = [np.arange(row * per_row, (row + 1) * per_row, dtype=np.int64) for row in range(len(counts))]
    rows = make_rows(counts, [start] * len(counts), tables, cache.block_tokens)
    shape = (sum(counts), spec.num_heads, spec.head_dim)
    q = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    out = np.zeros(shape, dtype=np.float32)

    def run() -> None:
        for keys, values in cache.tiles:
            ops.attention(q, keys, values, rows, spec.head_dim**-0.5, out)

    one = attention_work(spec, spec.num_layers, start, counts[0])
    work = Work(len(counts) * one.read_bytes, {kind: len(counts) * count for kind, count in one.operations.items()})
    return Case(op, sum(counts), start, run, work)
