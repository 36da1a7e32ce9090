"""A tiny random llama: transformers' model as the oracle, ours over the same weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

VOCAB = 101


@dataclass(frozen=True)
class Tiny:
    """`oracle` is a transformers LlamaForCausalLM in float32."""

    folder: Path
    oracle: object

    def greedy(self, prompt: list[int], num_tokens: int) -> list[int]:
        import torch

        ids = torch.tensor([prompt])
        made = self.oracle.generate(  # type: ignore[attr-defined]
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=num_tokens, do_sample=False, eos_token_id=None
        )
        return made[0, len(prompt) :].tolist()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        # Wide enough that greedy choices do not hang on rounding.
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config).eval()
    folder = tmp_path_factory.mktemp("tiny")
    model.save_pretrained(folder)
    return Tiny(folder, model)
