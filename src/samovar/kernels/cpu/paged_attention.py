"""Paged attention with torch's flash kernel for CPUs inside."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from samovar.kernels.cpu.attend import attend
from samovar.kernels.ref.paged_attention import paged_attention as over_pieces
from samovar.kernels.rows import RowPlan


def paged_attention(q: Tensor, keys: Tensor, values: Tensor, rows: Sequence[RowPlan], scale: float) -> Tensor:
    """As `ref.paged_attention.paged_attention`; in bfloat16 a piece's output is rounded before pieces are merged."""
    return over_pieces(q, keys, values, rows, scale, attend)
