"""Writes a transformers model as a GGUF file, as llama.cpp's converter lays it out."""

from __future__ import annotations

from pathlib import Path

import gguf
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize
import numpy as np
import torch
from torch import Tensor
import transformers

INNER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    if stem in OUTER:
        return f"{OUTER[stem]}.{kind}"
    _, _, layer, inner = stem.split(".", 3)
    return f"blk.{layer}.{INNER[inner]}.{kind}"


def save_gguf(
    path: Path,
    model: transformers.PreTrainedModel,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    extra: dict[str, Tensor] | None = None,
) -> Path:
    """Matrices are stored as `kind`; the model's own are replaced by what that kind keeps of them."""
    config, family = model.config, model.config.model_type
    writer = gguf.GGUFWriter(path, family)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        matrix = tensor.ndim == 2
        if matrix:
            kept = dequantize(quantize(tensor.numpy(), kind), kind)
            tensor.copy_(torch.from_numpy(np.array(kept)))
        values = tensor.numpy()
        if family == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
            values = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
        if matrix:
            writer.add_tensor(gguf_name(name), quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), values)
    for name, tensor in (extra or {}).items():
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
