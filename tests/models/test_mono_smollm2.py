"""SmolLM2 in its own quantisation: mono decode and the normal path give the same bits and the same greedy tokens on 20
prompts, alone and eight at a time."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import pytest

pytest.importorskip("torch")
from tests.kernels.packed import native, native_levels
from tests.models.oracle import batch_of
import torch
from torch import Tensor

from samovar.models.batch import ForwardBatch
from samovar.models.load import load_packed_model, new_tiled_cache
from samovar.models.locate import locate
from samovar.models.mono import MonoLlama
from samovar.models.packed_llama import PackedLlama
from samovar.text.checkpoint import load_text

pytestmark = [pytest.mark.torch, pytest.mark.model, pytest.mark.slow]

NUM_PROMPTS = 20
NUM_TOKENS = 128
BATCH = 8
BLOCK_TOKENS = 16
TEXT = Path(__file__).parent / "perplexity_text.txt"


@pytest.fixture(scope="module", params=native_levels()[:1])
def model(smollm2_gguf: Path, request: pytest.FixtureRequest) -> PackedLlama:
    checkpoint = locate(str(smollm2_gguf), smollm2_gguf.parent)
    return load_packed_model(checkpoint, native(request.param, threads=2), "auto", 1024)


@pytest.fixture(scope="module")
def prompts(smollm2_gguf: Path) -> list[Tensor]:
    """Of 5 to 423 tokens, from all over the text: attention ends in every chunk of 256, and some texts cross into the
    next one while they decode."""
    ids = torch.tensor(load_text(smollm2_gguf).tokenizer.encode(TEXT.read_text(encoding="utf-8")))
    return [ids[100 * number :][: 5 + 22 * number] for number in range(NUM_PROMPTS)]


class Pair:
    """The two paths beside each other, each over a cache of its own with room for `prompts`."""

    def __init__(self, model: PackedLlama, prompts: Sequence[Tensor]) -> None:
        needed = [-(-(len(ids) + NUM_TOKENS) // BLOCK_TOKENS) for ids in prompts]
        order = torch.randperm(sum(needed), generator=torch.Generator().manual_seed(1)).tolist()
        self.tables = [[order.pop() for _ in range(count)] for count in needed]
        self._caches = [new_tiled_cache(model.spec, sum(needed), BLOCK_TOKENS) for _ in range(2)]
        self._normal = model
        self._mono = MonoLlama(model, self._caches[1])

    def prefill(self, ids: Tensor, table: list[int]) -> Tensor:
        """Logits of the last token, [1, vocab]."""
        batch = batch_of([(ids, 0, table)], BLOCK_TOKENS)
        one, other = (self._normal.forward(batch, cache)[-1:] for cache in self._caches)
        assert torch.equal(one, other)
        return one

    def decode(self, batch: ForwardBatch) -> Tensor:
        assert self._mono.takes(batch)
        mono = self._mono.forward(batch, self._caches[1])
        normal = self._normal.forward(batch, self._caches[0])
        assert torch.equal(mono, normal), "mono decode and the normal path give other bits"
        return mono


@torch.inference_mode()
def greedy(model: PackedLlama, prompts: Sequence[Tensor]) -> list[list[tuple[int, bytes]]]:
    """Per prompt its tokens, each with a digest of the logits it was chosen by."""
    pair = Pair(model, prompts)
    logits = torch.cat([pair.prefill(ids, table) for ids, table in zip(prompts, pair.tables, strict=True)])
    made: list[list[tuple[int, bytes]]] = [[] for _ in prompts]
    for step in range(NUM_TOKENS):
        tokens, finite = model.argmax(logits)
        assert all(finite)
        for own, token, row in zip(made, tokens, logits, strict=True):
            own.append((token, blake2b(row.numpy().data, digest_size=16).digest()))
        rows = [
            (torch.tensor([token]), len(ids) + step, table)
            for token, ids, table in zip(tokens, prompts, pair.tables, strict=True)
        ]
        logits = pair.decode(batch_of(rows, BLOCK_TOKENS))
    return made


def test_the_same_bits_alone_and_eight_at_a_time(model: PackedLlama, prompts: list[Tensor]) -> None:
    alone = [greedy(model, [ids])[0] for ids in prompts]
    assert len({tuple(token for token, _ in made) for made in alone}) == NUM_PROMPTS
    assert max(len({token for token, _ in made}) for made in alone) > 40, "texts say something"
    for low in (0, 6, 12):
        together = greedy(model, prompts[low : low + BATCH])
        for number, made in enumerate(together, low):
            differing = [at for at, (own, other) in enumerate(zip(made, alone[number], strict=True)) if own != other]
            assert not differing, f"prompt {number} differs in a batch of {BATCH} from token {differing[0]} on"
