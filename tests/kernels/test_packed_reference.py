"""The reference of the packed ops against definitions of other origin: gguf's dequantiser, torch, dense attention."""

from __future__ import annotations

from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

pytest.importorskip("torch")
from tests.kernels.packed import KINDS, SOURCES, random_attention, random_gguf, random_records, zeros
import torch

from samovar.kernels.packed_ops import FORMATS, Format
from samovar.kernels.ref.records import STRIP_BYTES, unpack
from samovar.kernels.ref.rounding import from_bf16, rounded_input, to_bf16
from samovar.kernels.table import PACKED_REFERENCE as OPS

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("format", KINDS)
@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 50), blocks=st.integers(1, 5), seed=st.integers(0, 99))
def test_gguf_rows_keep_their_values(format: Format, n: int, blocks: int, seed: int) -> None:
    """In any order, in two parts, at any number of outputs."""
    rng = np.random.default_rng(seed)
    k = blocks * (256 if format in ("q4_k", "q6_k") else 32)
    raw, order = random_gguf(format, n, k, rng), rng.permutation(n).astype(np.int32)
    out, cut = zeros(OPS.packed_bytes(format, n, k)), n // 2
    OPS.pack(format, out, n, k, cut, SOURCES[format], raw, order[cut:])
    if cut:
        OPS.pack(format, out, n, k, 0, SOURCES[format], raw[order[:cut]], None)
    assert np.array_equal(unpack(format, out, n, k), dequantize(raw, KINDS[format])[order])


@pytest.mark.parametrize(("format", "tolerance"), [("f32", 0), ("bf16", 2**-8), ("q8", 1 / 220)])
def test_plain_numbers(format: Format, tolerance: float) -> None:
    """Of a bfloat16 the last of 8 bits, rounded; of 8 bits half a step of the group's largest, the scale in 11 bits."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(21, 100)).astype(np.float32)
    values[3, 32:64] = 0
    out = zeros(OPS.packed_bytes(format, 21, 100))
    OPS.pack(format, out, 21, 100, 0, "f32", values.view(np.uint8), None)
    got = unpack(format, out, 21, 100)
    groups = np.pad(np.abs(values), ((0, 0), (0, 28))).reshape(21, 4, 32).max(-1).repeat(32, 1)[:, :100]
    limit = np.abs(values) if format == "bf16" else groups
    assert (np.abs(got - values) <= limit * tolerance).all() and not got[3, 32:64].any()
    if format == "bf16":
        assert np.array_equal(got, torch.from_numpy(values).bfloat16().float().numpy())


def test_the_records_are_those_of_the_layout() -> None:
    """Single values, looked up by the byte arithmetic that `cpu/native/layout.h` draws."""
    n, k, output, column = 40, 512, 37, 300
    at = (output // 16 * (k // 64) + column // 64, output % 16, column % 64)  # strip, lane, input
    for format in FORMATS:
        data, value = random_records(format, n, k, np.random.default_rng(3)), None
        strip, lane, i = data[at[0] * STRIP_BYTES[format] :][: STRIP_BYTES[format]], at[1], at[2]
        wanted = unpack(format, data, n, k)[output, column]
        if format == "f32":
            value = strip.view(np.float32)[i * 16 + lane]
        elif format == "bf16":
            value = from_bf16(strip.view(np.uint16))[(i // 2 * 16 + lane) * 2 + i % 2]
        elif format in ("q8", "q6_k"):
            u = int(strip[(i // 4 * 16 + lane) * 4 + i % 4])
            dtype, group, offset = (np.float16, 32, 128) if format == "q8" else (np.float32, 16, 32)
            value = np.float32(strip[1024:].view(dtype)[i // group * 16 + lane]) * np.float32(u - offset)
        else:
            group, inside = i // 32, i % 32
            byte = int(strip[group * 256 + inside // 8 * 64 + lane * 4 + inside % 4])
            u = byte >> 4 if inside % 8 >= 4 else byte & 15
            numbers = strip[512:].view(np.float32 if format == "q4_k" else np.float16).astype(np.float32)
            value = numbers[group * 16 + lane] * np.float32(u - (8 if format == "q4_0" else 0))
            if format != "q4_0":
                value += numbers[32 + group * 16 + lane]
        assert value == wanted != 0, format


@given(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=40))
def test_bfloat16_rounds_as_torch(numbers: list[float]) -> None:
    x = np.array(numbers, dtype=np.float32)
    assert np.array_equal(from_bf16(to_bf16(x)), torch.from_numpy(x).bfloat16().float().numpy())


def test_inputs_are_rounded_in_groups() -> None:
    rng = np.random.default_rng(4)
    x = (rng.normal(size=(5, 72)) * 10 ** rng.uniform(-3, 3, size=(5, 72))).astype(np.float32)
    x[2] = 0
    got = rounded_input(x, "q4_1")
    for row in range(5):
        for low in range(0, 72, 32):
            group = x[row, low : low + 32]
            step = np.abs(group).max() / 127
            assert np.abs(got[row, low : low + 32] - group).max() <= step * 0.501
            assert np.abs(got[row, low : low + 32]).max() == pytest.approx(np.abs(group).max(), rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(
    chunks=st.lists(st.tuples(st.integers(0, 500), st.integers(1, 30)), min_size=1, max_size=3),
    group=st.integers(1, 4),
    kv_heads=st.integers(1, 3),
    block_tokens=st.sampled_from([16, 48]),
    seed=st.integers(0, 99),
)
def test_attention_is_dense_attention(
    chunks: list[tuple[int, int]], group: int, kv_heads: int, block_tokens: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    case = random_attention([(b + c, c) for b, c in chunks], group * kv_heads, kv_heads, 32, block_tokens, rng)
    out = np.empty(case.q.shape, dtype=np.float32)
    OPS.attention(case.q, case.keys, case.values, case.rows, 32**-0.5, out)
    for row, (k, v) in enumerate(zip(case.k, case.v, strict=True)):
        at = slice(int(case.rows.firsts[row]), int(case.rows.firsts[row] + case.rows.counts[row]))
        q = torch.from_numpy(case.q[at].copy()).bfloat16().double().transpose(0, 1)
        keys, values = (
            torch.from_numpy(x).bfloat16().double().repeat_interleave(group, 1).transpose(0, 1) for x in (k, v)
        )
        seen = torch.ones(q.shape[1], len(k), dtype=torch.bool).tril(len(k) - q.shape[1])
        wanted = torch.nn.functional.scaled_dot_product_attention(q, keys, values, seen).transpose(0, 1)
        # weights are rounded to 8 bits, numerator and total alike
        assert np.abs(out[at] - wanted.numpy()).max() < 2**-8 * np.abs(v).max()
