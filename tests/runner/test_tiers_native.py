"""Tiers under native kernels with mono decode, as `samovar serve` runs them by default: blocks that come back from
memory and disk hold, to the bit, what computing them again gives."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("torch")
from tests.kernels.packed import needs_native
from tests.models.oracle import save_tiny
from tests.runner.test_process import collect

from samovar.base.ids import RequestId
from samovar.base.keys import extend_keys, join_keys, pack_tokens, root_key
from samovar.core.request import Request
from samovar.core.sampling import SamplingParams
from samovar.core.stats import EngineStats
from samovar.runner.client import EngineClient
from samovar.runner.config import EngineProcessConfig

pytestmark = [pytest.mark.torch, needs_native]

BLOCK = 16
AGENTS, ROUNDS, FIRST_TOKENS, NEW_TOKENS = 4, 3, 100, 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    save_tiny(made, hidden_size=64, intermediate_size=96, num_attention_heads=4, head_dim=32, tie_word_embeddings=True)
    return made


def config(folder: Path, num_blocks: int = 17, **values: object) -> EngineProcessConfig:
    return EngineProcessConfig(
        model=str(folder),
        cache_dir=str(folder.parent),
        num_threads=2,
        num_gpu_blocks_override=num_blocks,
        max_model_len=256,
        monokernel="on",
        # Too short to give a prefill rate: everything that is found is loaded, however slow that is.
        max_num_batched_tokens=16,
        max_num_mixed_prefill_tokens=16,
        **values,  # type: ignore[arg-type]
    )


async def talk(told: EngineProcessConfig) -> tuple[list[list[int]], EngineStats]:
    """Agents in turn, each with a few turns of one conversation: their histories at the end."""
    histories = [[(agent * 37 + i * 11) % 90 + 3 for i in range(FIRST_TOKENS)] for agent in range(AGENTS)]
    engine = await EngineClient.start(told)
    try:
        for number in range(AGENTS * ROUNDS):
            prompt = histories[number % AGENTS]
            tokens, root = pack_tokens(prompt), root_key(engine.info.namespace)
            keys = join_keys(extend_keys(root, tokens, BLOCK))
            sampling = SamplingParams(max_tokens=12, temperature=0.0)
            made, _ = await collect(await engine.submit(Request(RequestId(number), tokens, sampling, root, keys)))
            while any(tier.not_yet_durable_blocks for tier in (await engine.cache_report()).tiers):
                await asyncio.sleep(0.01)
            histories[number % AGENTS] = prompt + made + [(number + i) % 90 + 3 for i in range(NEW_TOKENS)]
        await engine.check()
        return histories, await engine.stats()
    finally:
        await engine.close()


@pytest.mark.parametrize("kv_cache_dtype", ["bfloat16", "int8"])
async def test_the_same_tokens_and_the_same_bits(folder: Path, tmp_path: Path, kv_cache_dtype: str) -> None:
    """The device holds one of four conversations, host memory three; the rest goes over the disk. Then again,
    with room for every load to be computed a second time."""
    bare, _ = await talk(config(folder, kv_cache_dtype=kv_cache_dtype))
    block_bytes = 2 * 2 * 2 * BLOCK * (32 * 2 if kv_cache_dtype == "bfloat16" else 36)
    # Keys and values of 2 layers and 2 heads; a scale of 4 bytes beside 32 numbers of 8 bits.
    for kv_verify in (0, 1):
        tiers = {
            "kv_offloading_size": f"{30 * block_bytes}B",
            "kv_disk_path": str(tmp_path / str(kv_verify)),
            "kv_disk_size": "16MiB",
        }
        num_blocks = 30 if kv_verify else 17
        told, stats = await talk(
            config(folder, num_blocks, kv_cache_dtype=kv_cache_dtype, kv_verify=kv_verify, **tiers)
        )
        assert told == bare
        assert stats.failed_load_blocks == stats.differing_blocks == 0
        if kv_verify:
            assert stats.verified_blocks == stats.loaded_blocks > 0
        else:
            assert stats.loaded_blocks > 20 and stats.cached_tokens_by_tier["disk"] > 0
