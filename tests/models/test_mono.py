"""Mono decode: the same bits as the normal path on every instruction set, and after every stage what the other
interpreter computes from the same input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
from tests.kernels.packed import native, native_levels, needs_native
from tests.models.oracle import save_tiny
import torch

from samovar.kernels.packed_ops import PackedOps
from samovar.kernels.ref.mono import StageInterpreter
from samovar.kernels.rows import make_rows
from samovar.kernels.table import packed_reference
from samovar.models.batch import ForwardBatch, KVCache
from samovar.models.load import load_packed_model, new_tiled_cache
from samovar.models.locate import locate
from samovar.models.mono import MAX_ROWS, MonoLlama, bind_program, step_arguments
from samovar.models.packed_llama import PackedLlama
from samovar.spec.dtype import Quantization

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

SIZES = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 700,
}
FAMILIES = [
    ("llama", {}),
    ("llama", {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
    ("qwen3", {}),
]
DEPTHS = (0, 1, 15, 16, 255, 256, 300, 511, 600)


@pytest.fixture(params=native_levels())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


def load(folder: Path, ops: PackedOps, quantization: Quantization) -> PackedLlama:
    checkpoint = locate(str(folder), folder.parent)
    return load_packed_model(checkpoint, ops, quantization, checkpoint.spec.max_position_embeddings)


def written_cache(model: PackedLlama, contexts: list[int], seed: int) -> tuple[KVCache, list[np.ndarray]]:
    """A pool with random KV everywhere, and a table of shuffled blocks per row."""
    blocks = [-(-(depth + 1) // 16) for depth in contexts]
    cache = new_tiled_cache(model.spec, sum(blocks), 16)
    generator = torch.Generator().manual_seed(seed)
    for pool in (*cache.keys, *cache.values):
        pool.copy_(torch.randn(pool.shape, generator=generator))
    order = np.random.default_rng(seed).permutation(sum(blocks)).astype(np.int64)
    return cache, [np.ascontiguousarray(part) for part in np.split(order, np.cumsum(blocks)[:-1])]


def decode_batch(model: PackedLlama, contexts: list[int], tables: list[np.ndarray], seed: int) -> ForwardBatch:
    ids = torch.from_numpy(np.random.default_rng(seed).integers(0, model.spec.vocab_size, len(contexts)))
    slots = [int(table[depth // 16]) * 16 + depth % 16 for depth, table in zip(contexts, tables, strict=True)]
    return ForwardBatch(
        token_ids=ids,
        positions=torch.tensor(contexts),
        slots=torch.tensor(slots),
        rows=make_rows([1] * len(contexts), contexts, tables, 16),
        logit_rows=torch.arange(len(contexts)),
    )


def copy_of(model: PackedLlama, cache: KVCache) -> KVCache:
    copied = new_tiled_cache(model.spec, len(cache.keys[0]), 16)
    for target, source in zip((*copied.keys, *copied.values), (*cache.keys, *cache.values), strict=True):
        target.copy_(source)
    return copied


def same_pools(one: KVCache, other: KVCache) -> bool:
    pairs = zip((*one.keys, *one.values), (*other.keys, *other.values), strict=True)
    return all(torch.equal(a.view(torch.int16), b.view(torch.int16)) for a, b in pairs)


@pytest.mark.parametrize(("family", "changes"), FAMILIES)
@pytest.mark.parametrize("quantization", ["auto", "int8"])
@pytest.mark.parametrize("num_rows", [1, 2, 3, 9, MAX_ROWS])
def test_mono_and_normal_agree_bit_for_bit(
    isa: str, family: str, changes: dict[str, object], quantization: Quantization, num_rows: int, tmp_path: Path
) -> None:
    save_tiny(tmp_path, family, **(SIZES | changes))
    model = load(tmp_path, native(isa), quantization)
    contexts = [DEPTHS[row % len(DEPTHS)] for row in range(num_rows)]
    cache, tables = written_cache(model, contexts, seed=num_rows)
    batch = decode_batch(model, contexts, tables, seed=num_rows)
    other = copy_of(model, cache)
    mono = MonoLlama(model, cache)
    assert mono.takes(batch)
    assert torch.equal(mono.forward(batch, cache), model.forward(batch, other))
    assert same_pools(cache, other)


@pytest.mark.parametrize(("family", "changes"), FAMILIES)
@pytest.mark.parametrize("quantization", ["auto", "int8"])
@pytest.mark.parametrize("num_rows", [1, 5])
def test_every_stage_against_the_other_interpreter(
    isa: str, family: str, changes: dict[str, object], quantization: Quantization, num_rows: int, tmp_path: Path
) -> None:
    """Each stage starts from what the native one left before it, so errors do not add up. Tolerance: an 8-bit rounding
    at a tie may fall the other way, which moves a sum by a weight times 1/127 of its input's largest: measured up to
    0.024 of the root mean square. A stage that is wrong is off by more than 1."""
    save_tiny(tmp_path, family, **(SIZES | changes))
    model = load(tmp_path, native(isa), quantization)
    plain = load(tmp_path, packed_reference(model.ops.bf16_inputs), quantization)
    contexts = [DEPTHS[-1 - row] for row in range(num_rows)]
    cache, tables = written_cache(model, contexts, seed=7)
    batch = decode_batch(model, contexts, tables, seed=7)
    other = copy_of(model, cache)
    native_program, oracle = bind_program(model, cache), bind_program(plain, other)
    assert isinstance(oracle, StageInterpreter)
    arguments = step_arguments(batch)
    logits, wanted = (np.zeros((num_rows, model.spec.vocab_size), dtype=np.float32) for _ in range(2))
    stages = native_program.run_stages(*arguments, logits, 0, 0)
    own = oracle.table()
    assert [stage for stage in stages if stage in own] == own
    oracle.run_stages(*arguments, wanted, 0, 0)
    results = {"embed": "x", "qkv": "qkv", "attention_out": "x", "gate_up": "hidden", "down": "x"}
    checked = 0
    for index, (name, layer) in enumerate(stages):
        native_program.run_stages(*arguments, logits, index, index + 1)
        if (name, layer) not in own:
            continue
        at = own.index((name, layer))
        oracle.run_stages(*arguments, wanted, at, at + 1)
        if name == "attention_out":
            close(native_program.buffer("attention", num_rows), oracle.buffer("attention", num_rows), name, layer)
        if name in results:
            left = native_program.buffer(results[name], num_rows)
            close(left, oracle.buffer(results[name], num_rows), name, layer)
            oracle.put(results[name], left)
            checked += 1
    close(logits, wanted, "head", -1)
    assert checked == 1 + 4 * model.spec.num_layers
    for mine, its in zip((*cache.keys, *cache.values), (*other.keys, *other.values), strict=True):
        assert torch.allclose(mine.float(), its.float(), atol=0.03, rtol=0.02)


def close(got: np.ndarray, wanted: np.ndarray, stage: str, layer: int) -> None:
    spread = float(np.sqrt(np.mean(wanted**2))) + 1e-6
    error = float(np.max(np.abs(got - wanted))) / spread
    assert error < 0.06, f"stage {stage} of layer {layer}: off by {error:.3f} of the root mean square"


@needs_native
def test_other_steps_take_the_normal_path(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama", **SIZES)
    model = load(tmp_path, native(native_levels()[0]), "auto")
    cache, tables = written_cache(model, [20, 20], seed=1)
    mono = MonoLlama(model, cache, max_rows=1)
    two = decode_batch(model, [20, 20], tables, seed=1)
    assert not mono.takes(two)
    positions = torch.arange(5)
    prefill = ForwardBatch(
        token_ids=positions.clone(),
        positions=positions,
        slots=torch.tensor([int(tables[0][0]) * 16 + i for i in range(5)]),
        rows=make_rows([5], [0], tables[:1], 16),
        logit_rows=torch.tensor([4]),
    )
    assert not mono.takes(prefill)
    assert torch.equal(mono.forward(prefill, cache), model.forward(prefill, cache))
