"""A model that is quick and reads as much as agents send: random weights, SmolLM2's tokenizer, a context of 131,072."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from samovar.spec.fields import Fields
from samovar.spec.gguf_file import read_gguf_header
from samovar.text.export import export_hf
from samovar.text.gguf_tokenizer import gguf_templates, load_gguf

CONTEXT_TOKENS = 131_072
HIDDEN, HEADS, KV_HEADS, INTERMEDIATE, LAYERS = 64, 2, 1, 64, 2
"""The smallest that native kernels run: a head dimension of 32, an intermediate size in 32s."""


def make_checkpoint(gguf: Path, folder: Path) -> Path:
    """A Hugging Face folder with the tokenizer and chat template of a GGUF file; in under a second. The same weights
    every time."""
    metadata = Fields(read_gguf_header(gguf).metadata, str(gguf))
    tokenizer = load_gguf(metadata)
    folder.mkdir(parents=True, exist_ok=True)
    export_hf(tokenizer, gguf_templates(metadata), folder, CONTEXT_TOKENS, overwrite=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": tokenizer.vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HIDDEN // HEADS,
        "max_position_embeddings": CONTEXT_TOKENS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1_000_000.0,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_file(_weights(tokenizer.vocab_size), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _weights(vocab_size: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    kv = KV_HEADS * HIDDEN // HEADS
    shapes = {
        "self_attn.q_proj": (HIDDEN, HIDDEN),
        "self_attn.k_proj": (kv, HIDDEN),
        "self_attn.v_proj": (kv, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HIDDEN),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    }

    def drawn(shape: tuple[int, ...]) -> np.ndarray:
        return (0.2 * random.standard_normal(shape)).astype(np.float32)

    def ones() -> np.ndarray:
        return np.ones(HIDDEN, np.float32)

    weights = {"model.embed_tokens.weight": drawn((vocab_size, HIDDEN)), "model.norm.weight": ones()}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        weights |= {f"{prefix}.{name}.weight": drawn(shape) for name, shape in shapes.items()}
        weights |= {f"{prefix}.{name}.weight": ones() for name in ("input_layernorm", "post_attention_layernorm")}
    return weights
