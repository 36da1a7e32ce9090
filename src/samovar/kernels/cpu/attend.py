"""Attention over one piece of context by torch's flash kernel for CPUs: scores stay in the cache of a core, and
bfloat16 runs on the matrix unit. On one core about twice as fast as the reference in float32, five times in bfloat16.
"""

from __future__ import annotations

import torch
from torch import Tensor


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """As `ref.attend.attend`, with the output in q's dtype. K and V are read in place, the group's heads sharing them
    by a stride of 0 or, for one query, as the rows of one matrix."""
    groups, group_heads, num_queries, head_dim = q.shape
    keys, values = k.transpose(0, 1), v.transpose(0, 1)
    if num_queries == 1:
        queries, keys, values = q.view(1, groups, group_heads, head_dim), keys[None], values[None]
    else:
        queries = q
        keys = keys[:, None].expand(-1, group_heads, -1, -1)
        values = values[:, None].expand(-1, group_heads, -1, -1)
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        queries, keys, values, 0.0, causal and num_queries > 1, scale=scale
    )
    return out.reshape(q.shape), lse.reshape(q.shape[:3])
