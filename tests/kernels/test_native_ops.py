"""Every native op on every instruction set of this machine against the reference, over random shapes and strides; and
bit for bit the same for a row alone, among others, and on another number of threads.

Tolerances: the reference sums in float64 what the kernels sum in float32, `EXACT` of the size of the sums. Where inputs
are rounded to 8 bits one that lies between two steps may fall to either side, and a sum moves by `A_STEP`.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
from numpy.typing import NDArray
import pytest

pytest.importorskip("torch")
from tests.kernels.packed import (
    KINDS,
    SOURCES,
    native,
    native_levels,
    needs_native,
    random_attention,
    random_gguf,
    random_records,
    zeros,
)

from samovar.kernels.packed_ops import FORMATS, Format, PackedOps
from samovar.kernels.ref.records import unpack
from samovar.kernels.ref.rounding import from_bf16
from samovar.kernels.ref.tiled_attention import read_kv
from samovar.kernels.rows import make_rows
from samovar.kernels.table import PACKED_REFERENCE as REFERENCE
from samovar.kernels.table import packed_reference

pytestmark = pytest.mark.torch
Array = NDArray[np.float32]
EXACT = 1e-5
A_STEP = 2e-2


@pytest.fixture(scope="module", params=native_levels())
def ops(request: pytest.FixtureRequest) -> PackedOps:
    return native(request.param)


@pytest.fixture(scope="module")
def lonely(ops: PackedOps) -> PackedOps:
    """The same instruction set on one thread."""
    return native(ops.name, 1)


def sizes(format: Format) -> st.SearchStrategy[int]:
    """Inputs of a matrix of this format."""
    if format in ("q4_k", "q6_k"):
        return st.sampled_from([256, 768])
    return st.integers(1, 12).map(lambda groups: 32 * groups)


def wide(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Rows with others' columns between them."""
    return (rng.normal(size=(rows, columns + 5)) * 3).astype(np.float32)[:, :columns]


def inputs(rng: np.random.Generator, rows: int, columns: int, on_steps: bool) -> Array:
    """As `wide`; `on_steps`: numbers that 8 bits hold, so that rounding leaves no choice."""
    x = wide(rng, rows, columns)
    if on_steps:
        x[...] = rng.integers(-127, 128, x.shape) * np.float32(0.125)
        x[:, ::32] = 127 * 0.125
    return x


def close(got: Array, wanted: Array, share: float) -> None:
    scale = np.sqrt(np.square(wanted).mean()) + 1e-6
    assert np.isfinite(got).all() and np.abs(got - wanted).max() <= share * scale


def exact_inputs(ops: PackedOps, format: Format) -> bool:
    """Whether inputs are rounded in one way only."""
    return ops.bf16_inputs or format in ("bf16", "f32")


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=25, deadline=None)
@given(data=st.data(), n=st.integers(1, 90), num_rows=st.integers(1, 70), seed=st.integers(0, 999))
def test_linear(
    ops: PackedOps, lonely: PackedOps, format: Format, data: st.DataObject, n: int, num_rows: int, seed: int
) -> None:
    rng, k = np.random.default_rng(seed), data.draw(sizes(format))
    with_bias, add = data.draw(st.booleans()), data.draw(st.booleans())
    records = random_records(format, n, k, rng)
    on_steps = data.draw(st.booleans())
    matrix, x = ops.matrix(format, n, k, records), inputs(rng, num_rows, k, on_steps)
    bias = rng.normal(size=n).astype(np.float32) if with_bias else None
    before = wide(rng, num_rows, n)
    wanted, got = before.copy(), before.copy()
    reference = packed_reference(ops.bf16_inputs)
    reference.linear(x, reference.matrix(format, n, k, records), bias, add, wanted)
    ops.linear(x, matrix, bias, add, got)
    close(got, wanted, EXACT if on_steps or exact_inputs(ops, format) else A_STEP)
    some = data.draw(st.lists(st.integers(0, num_rows - 1), min_size=1, max_size=5))
    alone = before[some]
    lonely.linear(x[some], lonely.matrix(format, n, k, records), bias, add, alone)
    assert np.array_equal(alone, got[some])


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=15, deadline=None)
@given(data=st.data(), groups=st.integers(1, 3), num_rows=st.integers(1, 40), seed=st.integers(0, 999))
def test_linear_swiglu(
    ops: PackedOps, lonely: PackedOps, format: Format, data: st.DataObject, groups: int, num_rows: int, seed: int
) -> None:
    rng, k, n = np.random.default_rng(seed), data.draw(sizes(format)), 64 * groups
    on_steps = data.draw(st.booleans())
    records, x = random_records(format, n, k, rng), inputs(rng, num_rows, k, on_steps)
    bias = rng.normal(size=n).astype(np.float32) if data.draw(st.booleans()) else None
    wanted, got = wide(rng, num_rows, n // 2), wide(rng, num_rows, n // 2)
    reference = packed_reference(ops.bf16_inputs)
    reference.linear_swiglu(x, reference.matrix(format, n, k, records), bias, wanted)
    ops.linear_swiglu(x, ops.matrix(format, n, k, records), bias, got)
    close(got, wanted, 4 * (EXACT if on_steps or exact_inputs(ops, format) else A_STEP))
    alone = np.empty((1, n // 2), dtype=np.float32)
    lonely.linear_swiglu(x[-1:], lonely.matrix(format, n, k, records), bias, alone)
    assert np.array_equal(alone, got[-1:])


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=15, deadline=None)
@given(data=st.data(), n=st.integers(1, 80), seed=st.integers(0, 999))
def test_pack_and_embed(ops: PackedOps, format: Format, data: st.DataObject, n: int, seed: int) -> None:
    """A row of the matrix is what was packed, whichever of the two packed it."""
    rng, k = np.random.default_rng(seed), data.draw(sizes(format))
    raw = (
        random_gguf(format, n, k, rng) if format in KINDS else rng.normal(size=(n, k)).astype(np.float32).view(np.uint8)
    )
    source = SOURCES.get(format, "f32")
    order, cut = rng.permutation(n).astype(np.int32), data.draw(st.integers(0, n - 1))
    own, other = zeros(ops.packed_bytes(format, n, k)), zeros(REFERENCE.packed_bytes(format, n, k))
    for target, version in ((own, ops), (other, REFERENCE)):
        version.pack(format, target, n, k, cut, source, raw, order[cut:])
        if cut:
            version.pack(format, target, n, k, 0, source, raw[order[:cut]], None)
    values = unpack(format, own, n, k)
    assert np.array_equal(values, unpack(format, other, n, k))
    ids = rng.integers(0, n, 9)
    got = wide(rng, 9, k)
    ops.embed(ops.matrix(format, n, k, own), ids, got)
    np.testing.assert_allclose(got, values[ids], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("source", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("format", ["bf16", "q8"])
def test_pack_of_plain_numbers(ops: PackedOps, format: Format, source: str) -> None:
    rng, n, k = np.random.default_rng(5), 37, 96
    values = rng.normal(size=(n, k)).astype(np.float32)
    values[3, 32:64] = 0
    raw = {"f32": values, "f16": values.astype(np.float16), "bf16": (values.view(np.uint32) >> 16).astype(np.uint16)}
    own, other = zeros(ops.packed_bytes(format, n, k)), zeros(ops.packed_bytes(format, n, k))
    ops.pack(format, own, n, k, 0, source, raw[source].view(np.uint8), None)  # type: ignore[arg-type]
    REFERENCE.pack(format, other, n, k, 0, source, raw[source].view(np.uint8), None)  # type: ignore[arg-type]
    got, wanted = unpack(format, own, n, k), unpack(format, other, n, k)
    assert np.array_equal(got, wanted) and not got[3, 32:64].any()


@settings(max_examples=25, deadline=None)
@given(
    tokens=st.integers(1, 40), heads=st.integers(1, 5), dim=st.sampled_from([32, 64, 96, 256]), seed=st.integers(0, 99)
)
def test_norm_and_rope(ops: PackedOps, lonely: PackedOps, tokens: int, heads: int, dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    qkv = rng.normal(size=(tokens, heads + 2, dim)).astype(np.float32)
    x, weight = qkv[:, 1 : heads + 1], rng.normal(size=dim).astype(np.float32)
    wanted, before = np.empty_like(x), qkv.copy()
    REFERENCE.rms_norm(x, weight, 1e-5, wanted)
    flat, flat_out = x[:, 0], np.empty((tokens, dim), dtype=np.float32)
    ops.rms_norm(flat, weight, 1e-5, flat_out)
    close(flat_out, wanted[:, 0], EXACT)
    ops.rms_norm(x, weight, 1e-5, x)
    close(x, wanted, EXACT)
    alone = before[-1:, 1 : heads + 1]
    lonely.rms_norm(alone, weight, 1e-5, alone)
    assert np.array_equal(alone, x[-1:])
    angles = rng.uniform(-3, 3, size=(50, dim // 2)).astype(np.float32)
    positions, wanted = rng.integers(0, 50, tokens), x.copy()
    REFERENCE.rope(wanted, positions, np.cos(angles), np.sin(angles))
    ops.rope(x, positions, np.cos(angles), np.sin(angles))
    close(x, wanted, EXACT)
    assert np.array_equal(qkv[:, 0], before[:, 0]) and np.array_equal(qkv[:, heads + 1], before[:, heads + 1])


@settings(max_examples=25, deadline=None)
@given(
    tokens=st.integers(1, 40), kv_heads=st.integers(1, 4), dim=st.sampled_from([32, 64, 128]), seed=st.integers(0, 99)
)
def test_write_kv_touches_its_slots_only(ops: PackedOps, tokens: int, kv_heads: int, dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = random_attention([(1, 1)], kv_heads, kv_heads, dim, 32, rng)
    pools = [case.keys, case.values]
    expected = [pool.copy() for pool in pools]
    slots = rng.permutation(4 * 32)[:tokens]
    qkv = rng.normal(size=(tokens, 2 * kv_heads + 1, dim)).astype(np.float32)
    k, v = qkv[:, :kv_heads], qkv[:, kv_heads : 2 * kv_heads]
    REFERENCE.write_kv(expected[0], expected[1], slots, k, v)
    ops.write_kv(pools[0], pools[1], slots, k, v)
    assert all(np.array_equal(a, b) for a, b in zip(pools, expected, strict=True))
    back = read_kv(pools[0], pools[1], slots)
    assert np.abs(back[0] - k).max() <= 2**-8 * np.abs(k).max() and from_bf16(pools[0]).any()


@settings(max_examples=40, deadline=None)
@given(
    chunks=st.lists(st.tuples(st.integers(0, 700), st.integers(1, 40)), min_size=1, max_size=4),
    group=st.integers(1, 16),
    kv_heads=st.integers(1, 3),
    dim=st.sampled_from([32, 64, 96, 128, 256]),
    block_tokens=st.sampled_from([16, 48, 256]),
    seed=st.integers(0, 999),
)
def test_attention(
    ops: PackedOps,
    lonely: PackedOps,
    chunks: list[tuple[int, int]],
    group: int,
    kv_heads: int,
    dim: int,
    block_tokens: int,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    case = random_attention([(b + c, c) for b, c in chunks], group * kv_heads, kv_heads, dim, block_tokens, rng)
    wanted, got = np.empty(case.q.shape, dtype=np.float32), np.empty(case.q.shape, dtype=np.float32)
    REFERENCE.attention(case.q, case.keys, case.values, case.rows, dim**-0.5, wanted)
    ops.attention(case.q, case.keys, case.values, case.rows, dim**-0.5, got)
    # a weight may fall to the other side of a step of 8 bits, which shows where few share a context
    assert np.abs(got - wanted).max() <= 2**-8 * max(np.abs(v).max() for v in case.v)
    assert np.sqrt(np.square(got - wanted).mean()) <= 2**-10
    # the last query of the last row, as if it were a decode step of its own
    start = int(case.rows.starts[-1] + case.rows.counts[-1] - 1)
    last = make_rows([1], [start], [case.rows.tables[-1]], block_tokens)
    alone = np.empty((1, *case.q.shape[1:]), dtype=np.float32)
    lonely.attention(case.q[-1:], case.keys, case.values, last, dim**-0.5, alone)
    assert np.array_equal(alone, got[-1:])


@settings(max_examples=20, deadline=None)
@given(num_rows=st.integers(1, 9), columns=st.integers(1, 300), seed=st.integers(0, 99))
def test_argmax(ops: PackedOps, num_rows: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.integers(-5, 5, (num_rows, columns)).astype(np.float32)
    logits[rng.random((num_rows, columns)) < 0.002] = np.nan
    index, finite = np.empty(num_rows, dtype=np.int32), np.empty(num_rows, dtype=np.bool_)
    ops.argmax(logits, index, finite)
    sound = np.isfinite(logits).all(1)
    assert np.array_equal(finite, sound) and np.array_equal(index[sound], logits.argmax(1)[sound])


def test_shapes_that_do_not_fit_are_refused(ops: PackedOps) -> None:
    rng = np.random.default_rng(0)
    records = random_records("q4_1", 32, 64, rng)
    matrix = ops.matrix("q4_1", 32, 64, records)
    x, out = np.zeros((3, 64), dtype=np.float32), np.zeros((3, 32), dtype=np.float32)
    for bad_x, bad_out in ((x[:, :32], out), (x, out[:2]), (x, out[:, :16])):
        with pytest.raises(ValueError, match="must"):
            ops.linear(bad_x, matrix, None, False, bad_out)
    with pytest.raises(ValueError, match="ids"):
        ops.embed(matrix, np.array([32]), np.zeros((1, 64), dtype=np.float32))
    with pytest.raises(ValueError, match="packed_bytes"):
        ops.matrix("q4_1", 48, 64, records)


@needs_native
def test_outputs_of_another_dtype_or_layout_are_refused() -> None:
    """They would be written to a copy that nobody sees."""
    ops = native(str(native_levels()[0]))
    x, weight = np.ones((2, 32), dtype=np.float32), np.ones(32, dtype=np.float32)
    with pytest.raises(TypeError):
        ops.rms_norm(x, weight, 1e-5, np.zeros((2, 32), dtype=np.float64))  # type: ignore[arg-type]
    logits = np.ones((4, 10), dtype=np.float32)
    with pytest.raises(TypeError):
        ops.argmax(logits, np.zeros(8, dtype=np.int32)[::2], np.zeros(4, dtype=np.bool_))
    with pytest.raises(TypeError):
        ops.argmax(logits, np.zeros(4, dtype=np.int64), np.zeros(4, dtype=np.bool_))  # type: ignore[arg-type]
