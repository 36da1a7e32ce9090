"""A block of the device as bytes and back: the extension and plain numpy do the same, for every shape of pool."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from samovar.kernels.cpu.native_library import native_library
from samovar.kv.layout import BlockLayout

WAYS = [False, True] if native_library() is not None else [False]


def pool(shapes: list[tuple[tuple[int, ...], str]], num_blocks: int, seed: int = 0) -> list[np.ndarray]:
    """Arrays of random bytes, seen as whatever type."""
    rng = np.random.default_rng(seed)
    made = []
    for shape, dtype in shapes:
        size = num_blocks * int(np.prod(shape)) * np.dtype(dtype).itemsize
        made.append(rng.integers(0, 256, size, dtype=np.uint8).view(dtype).reshape(num_blocks, *shape))
    return made


def bytes_of(arrays: list[np.ndarray], block: int) -> bytes:
    return b"".join(array[block].tobytes() for array in arrays)


SHAPES = st.lists(
    st.tuples(
        st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple),
        st.sampled_from(["uint8", "uint16", "int16", "float32", "float16", "int8"]),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(
    shapes=SHAPES,
    num_blocks=st.integers(1, 6),
    native=st.sampled_from(WAYS),
    data=st.data(),
)
def test_gather_and_scatter(shapes: list, num_blocks: int, native: bool, data: st.DataObject) -> None:
    arrays = pool(shapes, num_blocks)
    layout = BlockLayout(arrays, native=native)
    assert (layout.num_blocks, layout.is_native) == (num_blocks, native)
    assert layout.block_bytes == len(bytes_of(arrays, 0))
    blocks = data.draw(st.lists(st.integers(0, num_blocks - 1), max_size=5, unique=True))
    stride = layout.block_bytes + data.draw(st.integers(0, 9))
    places = data.draw(st.permutations(range(len(blocks))))
    offsets = [place * stride for place in places]
    memory = np.full(len(blocks) * stride, 77, dtype=np.uint8)
    layout.gather(blocks, memory, offsets)
    expected = np.full_like(memory, 77)
    for block, at in zip(blocks, offsets, strict=True):
        expected[at : at + layout.block_bytes] = np.frombuffer(bytes_of(arrays, block), dtype=np.uint8)
    assert np.array_equal(memory, expected)

    other = pool(shapes, num_blocks, seed=1)
    before = [bytes_of(other, block) for block in range(num_blocks)]
    BlockLayout(other, native=native).scatter(blocks, memory, offsets)
    for block in range(num_blocks):
        assert bytes_of(other, block) == (bytes_of(arrays, block) if block in blocks else before[block])


@pytest.mark.parametrize("native", WAYS)
def test_blocks_that_lie_apart(native: bool) -> None:
    """Keys and values in one array: a piece is contiguous, the distance between blocks is larger."""
    both = pool([((2, 3, 4), "uint16")], 5)[0]
    keys, values = both[:, 0], both[:, 1]
    layout = BlockLayout([values, keys], native=native)
    memory = np.zeros(layout.block_bytes, dtype=np.uint8)
    layout.gather([3], memory, [0])
    assert memory.tobytes() == values[3].tobytes() + keys[3].tobytes()
    keys_before = both[0].copy()
    layout.scatter([0], memory, [0])
    assert np.array_equal(both[0], both[3, ::1]) and not np.array_equal(both[0], keys_before)


@pytest.mark.parametrize("native", WAYS)
@pytest.mark.parametrize(
    ("blocks", "offsets"),
    [([4], [0]), ([-1], [0]), ([0], [-1]), ([0], [11]), ([0, 1], [0]), ([0, 9], [0, 10])],
)
def test_what_is_out_of_range_is_refused_before_anything_is_written(
    native: bool, blocks: list[int], offsets: list[int]
) -> None:
    arrays = pool([((4,), "uint8"), ((6,), "uint8")], 4)
    before = [array.copy() for array in arrays]
    layout, memory = BlockLayout(arrays, native=native), np.zeros(20, dtype=np.uint8)
    with pytest.raises(ValueError):
        layout.gather(blocks, memory, offsets)
    assert not memory.any()
    memory[:] = 1
    with pytest.raises(ValueError):
        layout.scatter(blocks, memory, offsets)
    assert all(np.array_equal(now, old) for now, old in zip(arrays, before, strict=True))


@pytest.mark.parametrize("native", WAYS)
@pytest.mark.parametrize(
    "arrays",
    [
        [np.zeros(4)],
        [np.zeros((0, 3))],
        [np.zeros((4, 0))],
        [np.zeros((4, 3)), np.zeros((5, 3))],
        [np.zeros((4, 6))[:, ::2]],
        [np.zeros((4, 3, 5)).transpose(0, 2, 1)],
        [np.zeros((4, 3))[::-1]],
        [np.broadcast_to(np.zeros((1, 3)), (4, 3))],
        [np.lib.stride_tricks.as_strided(np.zeros(20), (4, 3), (16, 8))],
    ],
    ids=["flat", "no blocks", "empty", "unequal", "step", "transposed", "backwards", "read-only", "overlapping"],
)
def test_pools_that_cannot_be_copied(arrays: list[np.ndarray], native: bool) -> None:
    with pytest.raises(ValueError):
        BlockLayout(arrays, native=native)


@pytest.mark.skipif(native_library() is None, reason="no extension")
@pytest.mark.parametrize(
    "arrays",
    [[np.zeros(4)], [np.zeros((4, 3)), np.zeros((5, 3))], [np.zeros((4, 6))[:, ::2]], [np.zeros((4, 3))[::-1]]],
)
def test_the_extension_looks_for_itself(arrays: list[np.ndarray]) -> None:
    from samovar.kernels.cpu._native import Blocks

    with pytest.raises(ValueError):
        Blocks(arrays)


@pytest.mark.skipif(native_library() is None, reason="no extension")
def test_the_extension_checks_every_call() -> None:
    from samovar.kernels.cpu._native import Blocks

    blocks = Blocks([np.zeros((4, 10), dtype=np.uint8)])
    assert (blocks.num_blocks, blocks.block_bytes) == (4, 10)
    numbers = np.array([0], dtype=np.int64)
    for block, size, offset in ((4, 20, 0), (-1, 20, 0), (0, 20, 11), (0, 20, -1), (0, 9, 0), (0, 0, 0)):
        with pytest.raises(ValueError):
            blocks.gather(numbers + block, np.zeros(size, dtype=np.uint8), numbers + offset)
        with pytest.raises(ValueError):
            blocks.scatter(numbers + block, np.zeros(size, dtype=np.uint8), numbers + offset)
    blocks.gather(numbers[:0], np.zeros(0, dtype=np.uint8), numbers[:0])


def test_the_fingerprint_names_order_shapes_and_types_and_no_sizes_of_pools() -> None:
    def fingerprint(*shapes: tuple[tuple[int, ...], str], num_blocks: int = 4) -> bytes:
        return BlockLayout(pool(list(shapes), num_blocks), native=False).fingerprint

    a, b = ((2, 3), "uint16"), ((6,), "uint8")
    names = [
        fingerprint(a, b),
        fingerprint(b, a),
        fingerprint(a),
        fingerprint(a, b, b),
        fingerprint(((3, 2), "uint16"), b),
        fingerprint(((2, 3), "int16"), b),
        fingerprint(((6,), "uint16"), b),
    ]
    assert len(set(names)) == len(names) and all(len(name) == 16 for name in names)
    assert fingerprint(a, b, num_blocks=9) == names[0]


@pytest.mark.torch
@pytest.mark.parametrize("native", WAYS)
def test_views_of_torch_tensors(native: bool) -> None:
    torch = pytest.importorskip("torch")
    tensors = [torch.randn(4, 16, 2, 8), torch.randn(4, 16, 2, 8).to(torch.bfloat16)]
    layout = BlockLayout([tensors[0].numpy(), tensors[1].view(torch.int16).numpy()], native=native)
    memory = np.zeros(layout.block_bytes, dtype=np.uint8)
    layout.gather([1], memory, [0])
    layout.scatter([2], memory, [0])
    assert all(torch.equal(tensor[1], tensor[2]) for tensor in tensors)
