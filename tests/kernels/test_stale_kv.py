"""What a former owner left in a block never reaches another request, not even a NaN or an infinity: attention on every
instruction set gives the same bits over pools that were full of them and over pools of zeros."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
from numpy.typing import NDArray
import pytest

pytest.importorskip("torch")
from tests.kernels.packed import native, native_levels, random_attention

from samovar.kernels.packed_ops import PackedOps
from samovar.kernels.table import PACKED_REFERENCE

pytestmark = pytest.mark.torch

STALE: dict[str, NDArray[np.uint16]] = {
    "NaN": np.array([0x7FC0], dtype=np.uint16),
    "negative and signalling NaN": np.array([0xFFC1, 0x7F81, 0xFF81], dtype=np.uint16),
    "infinity": np.array([0x7F80], dtype=np.uint16),
    "minus infinity": np.array([0xFF80], dtype=np.uint16),
    "the largest numbers": np.array([0x7F7F, 0xFF7F, 0xFF7F], dtype=np.uint16),
    "some of each": np.array([0x7F80, 0xFF80, 0x7FC0, 0x3F80, 0xFF7F, 0x0001, 0xFFFF], dtype=np.uint16),
}
"""Bit patterns of bfloat16, repeated through the pool; of lengths that are no multiple of a tile's rows."""
ZERO = np.zeros(1, dtype=np.uint16)


@pytest.fixture(scope="module", params=["reference", *native_levels()])
def ops(request: pytest.FixtureRequest) -> PackedOps:
    return PACKED_REFERENCE if request.param == "reference" else native(request.param)


def attend(ops: PackedOps, shape: tuple[object, ...], seed: int, stale: NDArray[np.uint16]) -> NDArray[np.float32]:
    case = random_attention(*shape, np.random.default_rng(seed), stale)  # type: ignore[arg-type]
    out = np.empty(case.q.shape, dtype=np.float32)
    ops.attention(case.q, case.keys, case.values, case.rows, 0.125, out)
    return out


@settings(max_examples=30, deadline=None)
@given(
    stale=st.sampled_from(sorted(STALE)),
    chunks=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 70)), min_size=1, max_size=3),
    group=st.integers(1, 16),
    kv_heads=st.integers(1, 3),
    dim=st.sampled_from([32, 64, 96, 128, 256]),
    block_tokens=st.sampled_from([16, 48, 256]),
    seed=st.integers(0, 999),
)
def test_attention_never_sees_what_was_left_behind(
    ops: PackedOps,
    stale: str,
    chunks: list[tuple[int, int]],
    group: int,
    kv_heads: int,
    dim: int,
    block_tokens: int,
    seed: int,
) -> None:
    shape = ([(b + c, c) for b, c in chunks], group * kv_heads, kv_heads, dim, block_tokens)
    clean = attend(ops, shape, seed, ZERO)
    assert np.isfinite(clean).all()
    assert np.array_equal(attend(ops, shape, seed, STALE[stale]).view(np.uint32), clean.view(np.uint32))


@pytest.mark.parametrize("context", range(1, 33))
def test_every_place_in_a_tile(ops: PackedOps, context: int) -> None:
    """Decode and a chunk of three tokens that end at each place of the first two tiles."""
    for num_tokens in {1, min(3, context)}:
        shape = ([(context, num_tokens)], 6, 2, 64, 16)
        clean = attend(ops, shape, context, ZERO)
        for patterns in STALE.values():
            dirty = attend(ops, shape, context, patterns)
            assert np.array_equal(dirty.view(np.uint32), clean.view(np.uint32))
