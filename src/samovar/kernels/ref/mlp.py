"""The gated activation of the feed-forward block."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def swiglu(gate_up: Tensor) -> Tensor:
    """gate_up [T, 2 I], the gate's half first -> silu(gate) * up [T, I] in the same dtype."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)
