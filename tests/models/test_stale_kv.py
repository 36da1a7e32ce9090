"""One request's NaN stays its own: blocks full of NaN and infinities from a former owner, and a neighbour in the batch
whose context is NaN, change no bit of a request, in prefill, in decode and in mono decode, on every instruction set."""

from __future__ import annotations

from itertools import pairwise

from gguf.constants import GGMLQuantizationType as Kind
import pytest

pytest.importorskip("torch")
from tests.kernels.packed import native, native_levels
from tests.models.gguf_files import save_gguf
from tests.models.oracle import batch_of, save_tiny, some_ids
import torch
from torch import Tensor

from samovar.models.batch import KVCache
from samovar.models.load import load_packed_model, new_tiled_cache
from samovar.models.locate import locate
from samovar.models.mono import MonoLlama
from samovar.models.packed_llama import PackedLlama

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

SIZES = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 600,
}
PROMPT_TOKENS, NEW_TOKENS = 270, 21
TABLE, OTHER_TABLE = [17, 3, *range(20, 38)], [2, 19, *range(38, 56)]
NUM_BLOCKS = 56


@pytest.fixture(scope="module", params=native_levels())
def isa(request: pytest.FixtureRequest) -> str:
    level: str = request.param
    return level


@pytest.fixture(scope="module", params=["bfloat16", "q4_1", "q8_0"])
def model(isa: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PackedLlama:
    folder = tmp_path_factory.mktemp("tiny")
    oracle = save_tiny(folder, **SIZES)
    kinds = {"q4_1": Kind.Q4_1, "q8_0": Kind.Q8_0}
    path = save_gguf(folder / "x.gguf", oracle, kinds[request.param]) if request.param in kinds else folder
    return load_packed_model(locate(str(path), path.parent), native(isa), "auto", 600)


def cache_full_of(model: PackedLlama, value: float | None) -> KVCache:
    """`value`: everywhere; None: some of everything that is not a usable number."""
    cache = new_tiled_cache(model.spec, NUM_BLOCKS, 16)
    bad = torch.tensor([torch.nan, torch.inf, -torch.inf, 3e38, -3e38, 1.0, torch.nan])
    for pool in (*cache.keys, *cache.values):
        flat = pool.view(-1)
        flat.copy_(
            bad.repeat(len(flat) // len(bad) + 1)[: len(flat)] if value is None else torch.full_like(flat, value)
        )
    return cache


def serve(model: PackedLlama, cache: KVCache, chunk: int, mono: bool, neighbour: bool = False) -> Tensor:
    """Logits [T, vocab] of one request, its prompt in chunks and then token by token. `neighbour`: every step begins
    with a row of another request, whose logits are left out; it decodes over whatever the cache was full of."""
    ids = some_ids(PROMPT_TOKENS + NEW_TOKENS)
    forward = MonoLlama(model, cache).forward if mono else model.forward
    edges = [*range(0, PROMPT_TOKENS, chunk), *range(PROMPT_TOKENS, PROMPT_TOKENS + NEW_TOKENS + 1)]
    made = []
    for low, high in pairwise(edges):
        rows = [(ids[low:high], low, TABLE)]
        if neighbour:
            rows.insert(0, (ids[low : low + 1], 290, OTHER_TABLE))
        logits = forward(batch_of(rows, 16), cache)
        assert not neighbour or torch.isnan(logits[0]).all()
        made.append(logits[low - high :])
    return torch.cat(made)


@pytest.fixture(scope="module")
def clean(model: PackedLlama) -> Tensor:
    logits = serve(model, cache_full_of(model, 0.0), 64, mono=False)
    assert torch.isfinite(logits).all() and logits.std() > 0.5
    return logits


@pytest.mark.parametrize("mono", [False, True])
@pytest.mark.parametrize(("value", "chunk"), [(torch.nan, 64), (torch.inf, 7), (-torch.inf, 64), (None, 40)])
def test_reused_blocks(model: PackedLlama, clean: Tensor, value: float | None, chunk: int, mono: bool) -> None:
    assert torch.equal(serve(model, cache_full_of(model, value), chunk, mono), clean)


@pytest.mark.parametrize("mono", [False, True])
@pytest.mark.parametrize("chunk", [5, 64])
def test_a_neighbour_in_the_batch(model: PackedLlama, clean: Tensor, chunk: int, mono: bool) -> None:
    """Its context is NaN, so is all that it computes, and it lies before ours in every matrix product."""
    assert torch.equal(serve(model, cache_full_of(model, torch.nan), chunk, mono, neighbour=True), clean)
