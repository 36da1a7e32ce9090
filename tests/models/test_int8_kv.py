"""Models over KV in 8 bits: the same bits however tokens come about, and how far that is from KV in bfloat16."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("torch")
from tests.kernels.packed import native, native_levels
from tests.models.oracle import batch_of, run, save_tiny, some_ids
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from samovar.kernels.packed_ops import PackedOps
from samovar.kernels.table import PACKED_REFERENCE
from samovar.models.batch import KVCache
from samovar.models.load import load_packed_model, new_tiled_cache
from samovar.models.locate import locate
from samovar.models.mono import MonoLlama
from samovar.models.packed_llama import PackedLlama
from samovar.text.checkpoint import load_text

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

SIZES = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 700,
}
NAN_BYTE = 0xFF
"""Four of them are a NaN: what is left over behind a context must not show."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder, **SIZES)
    return folder


def load(folder: Path, ops: PackedOps) -> PackedLlama:
    return load_packed_model(locate(str(folder), folder.parent), ops, "auto", 700)


@pytest.fixture(scope="module", params=native_levels())
def model(request: pytest.FixtureRequest, folder: Path) -> PackedLlama:
    return load(folder, native(request.param))


def int8_cache(model: PackedLlama, num_blocks: int, block_tokens: int = 16) -> KVCache:
    cache = new_tiled_cache(model.spec, num_blocks, block_tokens, "int8")
    for pool in (*cache.keys, *cache.values):
        pool.fill_(NAN_BYTE)
    return cache


def run_int8(model: PackedLlama, ids: Tensor, chunk: int = 10**9, block_tokens: int = 16, mono: bool = False) -> Tensor:
    """[T, vocab]: one request, `chunk` tokens a step, in scattered blocks of a fresh pool."""
    needed = -(-len(ids) // block_tokens)
    cache = int8_cache(model, needed + 3, block_tokens)
    blocks = torch.randperm(needed + 3)[:needed].tolist()
    runner = MonoLlama(model, cache) if mono else model
    starts = range(0, len(ids), chunk)
    steps = [batch_of([(ids[at : at + chunk], at, blocks)], block_tokens) for at in starts]
    return torch.cat([runner.forward(step, cache) for step in steps])


@pytest.mark.parametrize("mono", [False, True])
@pytest.mark.parametrize(("chunk", "block_tokens"), [(1, 16), (1, 48), (7, 16), (130, 32), (257, 16)])
def test_the_same_bits_in_chunks(model: PackedLlama, chunk: int, block_tokens: int, mono: bool) -> None:
    """One by one, a block fills token by token: the tokens in it keep their numbers."""
    ids = some_ids(300)
    assert torch.equal(run_int8(model, ids, chunk, block_tokens, mono), run_int8(model, ids))


def test_the_same_bits_in_a_batch(model: PackedLlama) -> None:
    contexts, ids = [0, 15, 16, 255, 256, 290], some_ids(300)
    wanted = run_int8(model, ids)
    cache, table = int8_cache(model, len(contexts) * 20), list(range(20))
    tables = [[20 * row + block for block in reversed(table)] for row in range(len(contexts))]
    for context, blocks in zip(contexts, tables, strict=True):
        if context:
            model.forward(batch_of([(ids[:context], 0, blocks)], 16), cache)
    batch = batch_of([(ids[at : at + 1], at, blocks) for at, blocks in zip(contexts, tables, strict=True)], 16)
    other = KVCache(*[tuple(pool.clone() for pool in pools) for pools in (cache.keys, cache.values)], 16)  # type: ignore[arg-type]
    got = model.forward(batch, cache)
    assert torch.equal(got, wanted[contexts])
    before = [pool.clone() for pool in (*cache.keys, *cache.values)]
    for pool, clean in zip((*cache.keys, *cache.values), (*other.keys, *other.values), strict=True):
        pool.copy_(clean)
    assert torch.equal(MonoLlama(model, cache).forward(batch, cache), got)
    assert all(torch.equal(a, b) for a, b in zip(before, (*cache.keys, *cache.values), strict=True))


def test_a_copied_block_is_as_good(model: PackedLlama) -> None:
    ids, cache = some_ids(33), int8_cache(model, 8)
    model.forward(batch_of([(ids[:32], 0, [0, 1])], 16), cache)
    for pool in (*cache.keys, *cache.values):
        pool[5].copy_(pool[1])
    original = model.forward(batch_of([(ids[32:], 32, [0, 1, 2])], 16), cache)
    assert torch.equal(model.forward(batch_of([(ids[32:], 32, [0, 5, 3])], 16), cache), original)


def test_against_bfloat16_and_the_reference(model: PackedLlama, folder: Path) -> None:
    """Random weights amplify what is rounded; what is wrong is off by 1.4."""
    ids = some_ids(300)
    got = run_int8(model, ids)
    assert distance(got, run(model, ids)) < 0.06
    assert distance(got, run_int8(load(folder, PACKED_REFERENCE), ids)) < 0.05


def distance(got: Tensor, wanted: Tensor) -> float:
    """Root mean square of the difference, as a share of the logits' spread."""
    return ((got - wanted).square().mean().sqrt() / wanted.std()).item()


TEXT = Path(__file__).parent / "perplexity_text.txt"
WINDOW = 512


@pytest.mark.model
@pytest.mark.slow
def test_what_it_costs_smollm2(smollm2_gguf: Path) -> None:
    levels: Sequence[object] = native_levels()
    if not isinstance(levels[0], str):
        pytest.skip("this installation has no native kernels")
    checkpoint = locate(str(smollm2_gguf), smollm2_gguf.parent)
    smollm2 = load_packed_model(checkpoint, native(levels[0]), "auto", 1024)
    ids = torch.tensor(load_text(smollm2_gguf).tokenizer.encode(TEXT.read_text(encoding="utf-8")))
    windows = [ids[at : at + WINDOW] for at in range(0, len(ids) - WINDOW + 1, WINDOW)]
    assert len(windows) >= 4
    eight = torch.cat([run_int8(smollm2, window, 256)[:-1] for window in windows])
    sixteen = torch.cat([run(smollm2, window, 256)[:-1] for window in windows])
    targets = torch.cat([window[1:] for window in windows])
    ratio = (cross_entropy(eight, targets) - cross_entropy(sixteen, targets)).exp().item()
    agreement = (eight.argmax(-1) == sixteen.argmax(-1)).float().mean().item()
    print(f"perplexity x {ratio:.5f}, same best token {agreement:.4f}, distance {distance(eight, sixteen):.4f}")
    assert abs(ratio - 1) < 0.005 and agreement > 0.97 and distance(eight, sixteen) < 0.03
