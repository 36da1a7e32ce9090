"""SmolLM2 through the engine process: transformers' greedy tokens, the cache across turns, several at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("torch")
from tests.runner.test_process import collect, request
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from samovar.runner.client import EngineClient
from samovar.runner.config import EngineProcessConfig

pytestmark = [pytest.mark.torch, pytest.mark.model, pytest.mark.slow]

NUM_TOKENS = 24
CLOSE_CALL = 1e-3
"""Logits this near to each other may swap places under another order of summation."""


def random_prompt(seed: int, length: int) -> list[int]:
    return torch.randint(20, 40_000, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


class Oracle:
    def __init__(self, path: Path) -> None:
        config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        # `from_pretrained` would do this too, but asks for accelerate.
        tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
        model.load_state_dict(tensors, strict=False)
        model.tie_weights()
        self.model = model.eval()

    def agrees(self, prompt: list[int], made: list[int]) -> bool:
        """Whether every token is the best one after those before it, or as good as the best."""
        with torch.inference_mode():
            logits = self.model(torch.tensor([prompt + made])).logits[0, len(prompt) - 1 : -1]
        chosen = logits.gather(1, torch.tensor(made)[:, None])[:, 0]
        return bool((logits.amax(1) - chosen < CLOSE_CALL).all())


async def test_same_tokens_as_transformers(smollm2_gguf: Path) -> None:
    """Prompts of 300, 65 and 9 tokens together, cut into steps of 64 tokens; then a second turn on the first."""
    config = EngineProcessConfig(
        model=str(smollm2_gguf),
        cache_dir=str(smollm2_gguf.parent),
        dtype="float32",
        num_threads=1,  # spinning at barriers is slow on a shared machine
        kv_cache_memory_bytes=256 << 20,
        max_num_batched_tokens=64,
    )
    engine = await EngineClient.start(config)
    try:
        prompts = [random_prompt(seed, length) for seed, length in enumerate((300, 65, 9))]
        streams = [
            await engine.submit(request(engine, n, prompt, max_tokens=NUM_TOKENS)) for n, prompt in enumerate(prompts)
        ]
        made = [tokens for tokens, _ in await asyncio.gather(*(collect(stream) for stream in streams))]
        second = prompts[0] + made[0] + random_prompt(9, 20)
        turn, last = await collect(await engine.submit(request(engine, 3, second, max_tokens=NUM_TOKENS)))
        await engine.check()
    finally:
        await engine.close()
    assert last.num_cached_tokens >= (len(prompts[0]) + NUM_TOKENS - 1) // 16 * 16
    oracle = Oracle(smollm2_gguf)
    for prompt, tokens in zip([*prompts, second], [*made, turn], strict=True):
        assert len(tokens) == NUM_TOKENS
        assert oracle.agrees(prompt, tokens)
        assert not oracle.agrees(prompt, [*tokens[:-1], tokens[-1] ^ 1])
