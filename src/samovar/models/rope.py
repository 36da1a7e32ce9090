"""The angles of a rotary embedding, from its spec. Everything per model is computed once, per batch twice a step."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from samovar.base.errors import UnsupportedFeature
from samovar.spec.model import RopeSpec


def inverse_frequencies(rope: RopeSpec, head_dim: int, factors: Tensor | None = None) -> tuple[Tensor, float]:
    """[head_dim / 2] float32 radians per position, and what cos and sin are multiplied by.

    In float32 step by step, as transformers computes them: at position 8,000 the last bit of a frequency is 1e-3 of
    an angle. `factors` [head_dim / 2] divides the frequencies (a GGUF file's `rope_freqs.weight`).
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    if factors is not None:
        if rope.kind not in ("default", "linear"):
            raise UnsupportedFeature(f"rope_freqs.weight together with {rope.kind} rope scaling is not supported")
        frequencies = frequencies / factors
    if rope.kind == "linear":
        return frequencies / rope.parameters["factor"], 1.0
    if rope.kind == "llama3":
        return _llama3(frequencies, rope.parameters), 1.0
    if rope.kind == "yarn":
        return _yarn(frequencies, rope.theta, head_dim, rope.parameters), rope.parameters["attention_factor"]
    return frequencies, 1.0


def rotation(positions: Tensor, frequencies: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """positions [T] int64 -> cos, sin [T, head_dim / 2] float32."""
    angles = positions.float()[:, None] * frequencies
    return angles.cos() * scale, angles.sin() * scale


def _llama3(frequencies: Tensor, parameters: dict[str, float]) -> Tensor:
    """Slow dimensions are stretched by `factor`, fast ones kept, those between blended. Source: Llama 3.1 model card
    and code."""
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    turns = parameters["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - kept) * frequencies / parameters["factor"] + kept * frequencies


def _yarn(frequencies: Tensor, theta: float, head_dim: int, parameters: dict[str, float]) -> Tensor:
    """As llama3, with the blend linear in the dimension. Source: YaRN (arXiv 2309.00071), section 3.2."""

    def dimension_of(turns: float) -> float:
        wavelength = parameters["original_max_position_embeddings"] / (turns * 2 * math.pi)
        return head_dim * math.log(wavelength) / (2 * math.log(theta))

    low, high = dimension_of(parameters["beta_fast"]), dimension_of(parameters["beta_slow"])
    if parameters["truncate"]:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    width = (high - low) or 0.001
    stretched = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / width).clamp(0, 1)
    return frequencies / parameters["factor"] * stretched + frequencies * (1 - stretched)
