"""From a checkpoint's settings to a `ModelSpec`, without torch.

Everything a checkpoint asks for is either read or refused: a setting that would change the result is never ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from samovar.base.errors import CheckpointError, UnsupportedFeature
from samovar.spec.fields import Fields
from samovar.spec.model import ModelSpec
from samovar.spec.rope import rope_from_gguf, rope_from_hf


class _Biases(NamedTuple):
    qkv: bool = False
    o: bool = False
    mlp: bool = False


_HF_ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
_GGUF_ARCHITECTURES = ("llama", "qwen2", "qwen3")
_QWEN3_HEAD_DIM = 128
_MISTRAL_WINDOW = 4096
"""What transformers assumes when the field is absent; null means no window."""


def spec_from_hf_config(config: Mapping[str, object], where: str) -> ModelSpec:
    """`config` is a parsed config.json, `where` its path for messages. Raises CheckpointError, UnsupportedFeature."""
    fields = Fields(config, where)
    architecture = _hf_architecture(fields)
    max_positions = fields.integer("max_position_embeddings")
    _refuse_hf_features(fields)
    _refuse_hf_windows(fields, architecture, max_positions)
    hidden_size = fields.integer("hidden_size")
    num_heads = fields.integer("num_attention_heads")
    kv_default = num_heads if architecture == "llama" else None
    num_kv_heads = fields.integer("num_key_value_heads", kv_default)
    biases = _hf_biases(fields, architecture)
    head_dim_default = _QWEN3_HEAD_DIM if architecture == "qwen3" else None
    return ModelSpec(
        architecture=architecture,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=fields.integer("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=_checked_kv_heads(num_heads, num_kv_heads, where),
        head_dim=_head_dim(fields, "head_dim", hidden_size, num_heads, head_dim_default),
        rms_norm_eps=fields.number("rms_norm_eps"),
        rope=rope_from_hf(fields, max_positions),
        max_position_embeddings=max_positions,
        tie_word_embeddings=fields.flag("tie_word_embeddings", False),
        qkv_bias=biases.qkv,
        o_bias=biases.o,
        mlp_bias=biases.mlp,
        qk_norm=architecture == "qwen3",
    )


def _hf_architecture(fields: Fields) -> str:
    names = fields.raw("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise CheckpointError(f"{fields.where}: field architectures is {names!r}; it must be a list of one name")
    if names[0] not in _HF_ARCHITECTURES:
        raise fields.unsupported("architectures", ", ".join(_HF_ARCHITECTURES))
    return _HF_ARCHITECTURES[names[0]]


def _refuse_hf_features(fields: Fields) -> None:
    if fields.text("hidden_act", "silu") != "silu":
        raise fields.unsupported("hidden_act", "silu")
    if fields.integer("pretraining_tp", 1) != 1:
        raise fields.unsupported("pretraining_tp", "1")
    if fields.has("quantization_config"):
        raise fields.unsupported("quantization_config", "safetensors in float32, float16 or bfloat16, or a GGUF file")
    for experts in ("num_local_experts", "num_experts", "n_routed_experts"):
        if fields.integer(experts, 1, minimum=0) > 1:
            raise fields.unsupported(experts, "dense models (no mixture of experts)")


def _refuse_hf_windows(fields: Fields, architecture: str, max_positions: int) -> None:
    """A window at least as long as the context hides nothing and is let through."""
    window = fields.raw("sliding_window")
    if architecture == "mistral" and "sliding_window" not in fields:
        window = _MISTRAL_WINDOW
    reaches = isinstance(window, int) and window >= max_positions
    kinds = fields.raw("layer_types") or []
    if not isinstance(kinds, list):
        raise CheckpointError(f"{fields.where}: field layer_types is {kinds!r}; it must be a list")
    for kind in kinds:
        if kind != "full_attention" and not (kind == "sliding_attention" and reaches):
            raise fields.unsupported("layer_types", "full_attention in every layer")
    uses_window = architecture == "mistral" or fields.flag("use_sliding_window", False)
    if uses_window and window is not None and not reaches:
        raise fields.unsupported("sliding_window", f"null, or at least max_position_embeddings ({max_positions})")


def _hf_biases(fields: Fields, architecture: str) -> _Biases:
    """Qwen2 has biases on q, k and v whatever its config says; Mistral has none and no field for them."""
    if architecture == "qwen2":
        return _Biases(qkv=True)
    if architecture == "mistral":
        return _Biases()
    attention = fields.flag("attention_bias", False)
    return _Biases(attention, attention, architecture == "llama" and fields.flag("mlp_bias", False))


def spec_from_gguf_metadata(meta: Mapping[str, object], where: str, tensors: Collection[str]) -> ModelSpec:
    """`meta` holds the file's key-value pairs, `tensors` the names of its tensors: biases and an output matrix of its
    own are told only by their presence. Mistral models are "llama" in GGUF. Raises CheckpointError, UnsupportedFeature.
    """
    general = Fields(meta, where)
    architecture = general.text("general.architecture")
    if architecture not in _GGUF_ARCHITECTURES:
        raise general.unsupported("general.architecture", ", ".join(_GGUF_ARCHITECTURES))
    if general.integer("split.count", 1, minimum=0) > 1:
        raise general.unsupported("split.count", "a model in one file (merge it with llama-gguf-split --merge)")
    fields = Fields(meta, where, prefix=f"{architecture}.")
    max_positions = fields.integer("context_length")
    _refuse_gguf_features(fields, max_positions)
    hidden_size = fields.integer("embedding_length")
    num_heads = fields.integer("attention.head_count")
    head_dim = _head_dim(fields, "attention.key_length", hidden_size, num_heads, None)
    for must_equal in ("attention.value_length", "rope.dimension_count"):
        if fields.integer(must_equal, head_dim) != head_dim:
            raise fields.unsupported(must_equal, f"the head dimension, {head_dim}")
    return ModelSpec(
        architecture=architecture,
        vocab_size=_gguf_vocab_size(fields, general),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("feed_forward_length"),
        num_layers=fields.integer("block_count"),
        num_heads=num_heads,
        num_kv_heads=_checked_kv_heads(num_heads, fields.integer("attention.head_count_kv", num_heads), where),
        head_dim=head_dim,
        rms_norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        rope=rope_from_gguf(fields, max_positions),
        max_position_embeddings=max_positions,
        tie_word_embeddings="output.weight" not in tensors,
        qkv_bias="blk.0.attn_q.bias" in tensors,
        o_bias="blk.0.attn_output.bias" in tensors,
        mlp_bias="blk.0.ffn_down.bias" in tensors,
        qk_norm=architecture == "qwen3",
    )


def _refuse_gguf_features(fields: Fields, max_positions: int) -> None:
    if fields.integer("expert_count", 0, minimum=0) > 0:
        raise fields.unsupported("expert_count", "dense models (no mixture of experts)")
    window = fields.integer("attention.sliding_window", 0, minimum=0)
    if 0 < window < max_positions:
        raise fields.unsupported("attention.sliding_window", f"absent, or at least context_length ({max_positions})")
    if not fields.flag("attention.causal", True):
        raise fields.unsupported("attention.causal", "true")
    scales = ("attention.scale", "attention.clamp_kqv", "logit_scale", "embedding_scale", "residual_scale")
    for scale in (*scales, "attn_logit_softcapping", "final_logit_softcapping"):
        if fields.has(scale):
            raise fields.unsupported(scale, "absent")


def _gguf_vocab_size(fields: Fields, general: Fields) -> int:
    tokens = general.raw("tokenizer.ggml.tokens")
    return fields.integer("vocab_size", len(tokens) if isinstance(tokens, list) else None)


def _head_dim(fields: Fields, name: str, hidden_size: int, num_heads: int, default: int | None) -> int:
    if not fields.has(name) and default is None and hidden_size % num_heads:
        raise CheckpointError(
            f"{fields.where}: field {fields.full_name(name)} is missing, and the hidden size {hidden_size}"
            f" is no multiple of the {num_heads} attention heads"
        )
    head_dim = fields.integer(name, default or hidden_size // num_heads)
    if head_dim % 2:
        raise UnsupportedFeature(
            f"{fields.where}: {fields.full_name(name)} = {head_dim} is not supported; the rotary embedding needs pairs"
        )
    return head_dim


def _checked_kv_heads(num_heads: int, num_kv_heads: int, where: str) -> int:
    if num_heads % num_kv_heads:
        raise CheckpointError(f"{where}: {num_heads} attention heads are no multiple of {num_kv_heads} key-value heads")
    return num_kv_heads
