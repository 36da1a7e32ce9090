"""The rotary embedding a checkpoint asks for, with every default settled, from Hugging Face or GGUF settings."""

from __future__ import annotations

import math

from samovar.spec.fields import Fields
from samovar.spec.model import RopeSpec

DEFAULT_THETA = 10000.0
_KINDS = "default, linear, llama3, yarn"


def rope_from_hf(config: Fields, max_position_embeddings: int) -> RopeSpec:
    """Reads `rope_parameters` (transformers 5) or `rope_scaling` with `rope_theta` beside it (before).

    yarn's parameters come out complete: `factor`, `original_max_position_embeddings`, `beta_fast`, `beta_slow`,
    `attention_factor`, `truncate` (0 or 1).
    """
    rope = config.nested("rope_parameters" if config.has("rope_parameters") else "rope_scaling")
    theta = rope.number("rope_theta", config.number("rope_theta", DEFAULT_THETA))
    for place in (config, rope):
        if place.number("partial_rotary_factor", 1.0) != 1.0:
            raise place.unsupported("partial_rotary_factor", "1 (every dimension rotated)")
    for per_layer in ("full_attention", "sliding_attention", "mrope_section", "mrope_interleaved"):
        if rope.has(per_layer):
            raise rope.unsupported(per_layer, "one rotary embedding for all layers and one position per token")
    kind_field = "rope_type" if rope.has("rope_type") else "type"
    kind = rope.text(kind_field, "default")
    if kind == "default":
        return RopeSpec(theta)
    if kind == "linear":
        return RopeSpec(theta, "linear", {"factor": rope.number("factor")})
    original = config.integer(
        "original_max_position_embeddings",
        rope.integer("original_max_position_embeddings", max_position_embeddings),
    )
    if kind == "llama3":
        names = ("factor", "low_freq_factor", "high_freq_factor")
        parameters = {name: rope.number(name) for name in names}
        return RopeSpec(theta, "llama3", {**parameters, "original_max_position_embeddings": float(original)})
    if kind == "yarn":
        return RopeSpec(theta, "yarn", _yarn(rope, original, rope.number("factor", max_position_embeddings / original)))
    raise rope.unsupported(kind_field, _KINDS)


def _yarn(rope: Fields, original: int, factor: float) -> dict[str, float]:
    if rope.has("mscale") and rope.has("mscale_all_dim"):
        mscale, all_dim = rope.number("mscale"), rope.number("mscale_all_dim")
        attention = yarn_attention_factor(factor, mscale) / yarn_attention_factor(factor, all_dim)
    else:
        attention = yarn_attention_factor(factor)
    return {
        "factor": factor,
        "original_max_position_embeddings": float(original),
        "beta_fast": rope.number("beta_fast", 32.0),
        "beta_slow": rope.number("beta_slow", 1.0),
        "attention_factor": rope.number("attention_factor", attention),
        "truncate": float(rope.flag("truncate", True)),
    }


def yarn_attention_factor(factor: float, mscale: float = 1.0) -> float:
    """What cos and sin are multiplied by. Source: YaRN (arXiv 2309.00071), section 3.4."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def rope_from_gguf(meta: Fields, max_position_embeddings: int) -> RopeSpec:
    """Reads the `<architecture>.rope.*` keys. llama3 scaling is not among them: such files carry a tensor
    `rope_freqs.weight`, by which the loader divides the frequencies.

    GGUF's yarn attention factors multiply the one derived from `factor`; Hugging Face's replaces it. The result here
    has the latter meaning.
    """
    theta = meta.number("rope.freq_base", DEFAULT_THETA)
    if meta.has("rope.dimension_sections"):
        raise meta.unsupported("rope.dimension_sections", "one position per token")
    legacy = meta.number("rope.scale_linear", 1.0)
    kind = meta.text("rope.scaling.type", "linear" if legacy != 1.0 else "none")
    factor = meta.number("rope.scaling.factor", legacy)
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return RopeSpec(theta)
    if kind == "linear":
        return RopeSpec(theta, "linear", {"factor": factor})
    if kind != "yarn":
        raise meta.unsupported("rope.scaling.type", "none, linear, yarn")
    if meta.number("rope.scaling.yarn_ext_factor", 1.0) != 1.0:
        raise meta.unsupported("rope.scaling.yarn_ext_factor", "1")
    if meta.has("rope.scaling.yarn_log_multiplier"):
        raise meta.unsupported("rope.scaling.yarn_log_multiplier", "absent")
    attention = yarn_attention_factor(factor)
    attention *= meta.number("rope.scaling.attn_factor", 1.0) * meta.number("rope.scaling.yarn_attn_factor", 1.0)
    return RopeSpec(
        theta,
        "yarn",
        {
            "factor": factor,
            "original_max_position_embeddings": float(
                meta.integer("rope.scaling.original_context_length", max_position_embeddings)
            ),
            "beta_fast": meta.number("rope.scaling.yarn_beta_fast", 32.0),
            "beta_slow": meta.number("rope.scaling.yarn_beta_slow", 1.0),
            "attention_factor": attention,
            "truncate": 1.0,
        },
    )
