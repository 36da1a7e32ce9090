"""Attention of a batch's rows over the block pool, K and V read where they lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from samovar.kernels.ref.attend import attend as attend_reference
from samovar.kernels.rows import ContextPiece, RowPlan

Attend = Callable[[Tensor, Tensor, Tensor, float, bool], tuple[Tensor, Tensor]]
"""(q, k, v, scale, causal) -> (output, log-sum-exp), as `ref.attend.attend`."""


def paged_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: Sequence[RowPlan],
    scale: float,
    attend: Attend = attend_reference,
) -> Tensor:
    """q [T, H, D]; keys, values [num_blocks, block_tokens, Hkv, D], contiguous; -> [T, H, D] in q's dtype.

    Reads only; every position of a row's context must have been written. Rows of the batch that no plan covers come
    out undefined. Pieces are merged in float32 by their log-sum-exp, in order of position.
    """
    num_tokens, num_heads, head_dim = q.shape
    kv_heads = keys.shape[2]
    grouped = (num_tokens, kv_heads, num_heads // kv_heads, head_dim)
    queries = q.view(grouped).permute(1, 2, 0, 3)
    out = torch.empty(grouped, dtype=q.dtype, device=q.device)
    target = out.permute(1, 2, 0, 3)
    flat_keys, flat_values = keys.view(-1, kv_heads, head_dim), values.view(-1, kv_heads, head_dim)
    for row in rows:
        at = slice(row.first, row.first + row.num_tokens)
        target[:, :, at] = _row(queries[:, :, at], flat_keys, flat_values, row, scale, attend)
    return out.view(num_tokens, num_heads, head_dim)


def _row(q: Tensor, keys: Tensor, values: Tensor, row: RowPlan, scale: float, attend: Attend) -> Tensor:
    causal_from = row.start if row.num_tokens > 1 else row.start + 1
    out, lse = attend(q, *_read(keys, values, row.pieces[0]), scale, row.pieces[0].start >= causal_from)
    if len(row.pieces) == 1:
        return out
    out = out.float()
    for piece in row.pieces[1:]:
        unseen = max(0, piece.start - row.start)  # queries before the piece see nothing of it
        seen_by = q[:, :, unseen:]
        more, more_lse = attend(seen_by, *_read(keys, values, piece), scale, piece.start >= causal_from)
        old_lse = lse[:, :, unseen:]
        new_lse = torch.logaddexp(old_lse, more_lse)
        merged = out[:, :, unseen:]
        merged.mul_(torch.exp(old_lse - new_lse)[..., None])
        merged.add_(more * torch.exp(more_lse - new_lse)[..., None])
        old_lse.copy_(new_lse)
    return out


def _read(keys: Tensor, values: Tensor, piece: ContextPiece) -> tuple[Tensor, Tensor]:
    if piece.gather is not None:
        return keys.index_select(0, piece.gather), values.index_select(0, piece.gather)
    at = slice(piece.slot, piece.slot + piece.num_tokens)
    return keys[at], values[at]
