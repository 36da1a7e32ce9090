"""The formulas of bounds, against sums written out."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.bench.compute.bounds import (
    Work,
    attention_work,
    bound,
    chunks_of,
    decode_work,
    kind_of,
    operations_of,
    prefill_work,
    total,
)
from tests.bench.compute.sizes import HEAD, LAYER, LIMITS, SIZE, SPEC

KV_BYTES = 2 * 2 * 32 * 2
"""Of one token in one layer."""


def test_the_larger_time_is_the_bound() -> None:
    assert bound(Work(10_000_000_000, {"bf16": 50_000_000_000}), LIMITS).by == "bandwidth"
    assert bound(Work(10_000_000_000, {"bf16": 50_000_000_000}), LIMITS).seconds == 1.0
    computed = bound(Work(1_000, {"bf16": 200_000_000_000, "int8": 200_000_000_000}), LIMITS)
    assert computed.by == "compute"
    assert computed.seconds == pytest.approx(2 + 1), "kinds run one after the other, each at the higher of its peaks"


def test_a_peak_without_torch() -> None:
    peak = replace(LIMITS.peaks["int8"], torch_per_s=None)
    assert peak.per_s == 150e9


def test_kinds() -> None:
    assert [kind_of(one) for one in ("bf16", "q8", "q4_1", "q6_k")] == ["bf16", "int8", "int8", "int8"]


@given(st.integers(0, 40), st.integers(1, 40), st.integers(1, 4))
def test_attention_counts_every_pair(start: int, tokens: int, layers: int) -> None:
    work = attention_work(SPEC, layers, start, tokens)
    pairs = sum(position + 1 for position in range(start, start + tokens))
    assert work.operations == {"bf16": 4 * pairs * 4 * 32 * layers}
    assert work.read_bytes == (start + tokens) * KV_BYTES * layers


def test_decode_reads_weights_once_and_every_context() -> None:
    work = decode_work(SIZE, rows=5, depth=9)
    assert work.read_bytes == 12 * 1_000 + HEAD.num_bytes + 5 * 10 * 3 * KV_BYTES
    weights = sum(matrix.n * matrix.k for matrix in LAYER) * 3
    assert work.operations["int8"] == 2 * 5 * weights
    assert work.operations["bf16"] == 2 * 5 * 100 * 64 + 5 * 4 * 10 * 4 * 32 * 3


def test_prefill_of_one_token_is_decode_at_depth_0() -> None:
    assert prefill_work(SIZE, [1]) == decode_work(SIZE, 1, 0)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=5))
def test_prefill_in_chunks_multiplies_as_often(chunks: list[int]) -> None:
    whole, cut = prefill_work(SIZE, [sum(chunks)]), prefill_work(SIZE, chunks)
    assert cut.operations["int8"] == whole.operations["int8"]
    # chunks before the last skip attention in the last layer
    skipped = attention_work(SPEC, 1, 0, sum(chunks[:-1])).operations["bf16"]
    assert cut.operations["bf16"] == whole.operations["bf16"] - skipped
    assert cut.read_bytes >= whole.read_bytes - sum(chunks) * KV_BYTES
    assert prefill_work(SIZE, [7, 7]).read_bytes > prefill_work(SIZE, [14]).read_bytes, "weights are read per step"


@given(st.integers(1, 10_000), st.integers(1, 3_000))
def test_chunks(tokens: int, step: int) -> None:
    chunks = chunks_of(tokens, step)
    assert sum(chunks) == tokens
    assert all(chunk == step for chunk in chunks[:-1]) and 0 < chunks[-1] <= step


def test_sums() -> None:
    both = total([Work(1, {"bf16": 2}), Work(10, {"int8": 3, "bf16": 4})])
    assert both == Work(11, {"bf16": 6, "int8": 3})
    assert operations_of(Work(1, {"bf16": 0, "int8": 3})) == {"int8": 3}
