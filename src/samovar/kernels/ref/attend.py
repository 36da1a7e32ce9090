"""Attention over one piece of context, in plain torch: the definition the faster versions are compared with."""

from __future__ import annotations

import torch
from torch import Tensor

TILE_TOKENS = 1024


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """Softmax attention and its normaliser, so that pieces can be merged.

    q [Hkv, G, L, D]: the G query heads that share a K/V head. k, v [N, Hkv, D], any strides but the last.
    `causal`: query i sees keys 0..i of the N (queries beyond N see all of them).
    Returns the output [Hkv, G, L, D] and log-sum-exp [Hkv, G, L], both float32. K and V are read in tiles of
    `TILE_TOKENS` with an online softmax, so the scores in memory are bounded.
    """
    groups, group_heads, num_queries, head_dim = q.shape
    rows = q.float().reshape(groups, group_heads * num_queries, head_dim) * scale
    query = torch.arange(num_queries, device=q.device).repeat(group_heads)[:, None]
    top = rows.new_full((groups, rows.shape[1], 1), -torch.inf)
    total = torch.zeros_like(top)
    out = torch.zeros_like(rows)
    for low in range(0, k.shape[0], TILE_TOKENS):
        keys = k[low : low + TILE_TOKENS].float().permute(1, 2, 0)
        values = v[low : low + TILE_TOKENS].float().transpose(0, 1)
        scores = rows @ keys
        if causal and low + keys.shape[2] > 1:
            key = torch.arange(low, low + keys.shape[2], device=q.device)
            scores.masked_fill_(key > query, -torch.inf)
        new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
        weights = torch.exp_(scores.sub_(new_top))
        shrink = torch.exp(top - new_top)
        total = total * shrink + weights.sum(-1, keepdim=True)
        out = out * shrink + weights @ values
        top = new_top
    lse = (top + torch.log(total)).view(groups, group_heads, num_queries)
    return (out / total).view(groups, group_heads, num_queries, head_dim), lse
