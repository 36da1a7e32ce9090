"""Rotary position embedding, in the layout of Hugging Face: dimension i turns with dimension i + D/2."""

from __future__ import annotations

import torch
from torch import Tensor


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [T, H, D]; cos, sin [T, D/2] float32 -> a new tensor of x's shape and dtype, rotated in float32."""
    half = x.shape[-1] // 2
    first, second = x[..., :half].float(), x[..., half:].float()
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)
