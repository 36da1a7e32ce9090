"""Root-mean-square normalisation."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., D], weight broadcastable to it -> x's dtype. Computed in float32; as in transformers, rounded to x's
    dtype before the weight is applied."""
    wide = x.float()
    normal = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return normal.to(x.dtype) * weight
