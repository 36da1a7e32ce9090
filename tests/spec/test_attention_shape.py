"""What a rank keeps of the matrices around the attention."""

from __future__ import annotations

import pytest

from samovar.spec.attention_shape import GqaShape


@pytest.mark.parametrize(("tp", "kv_heads_on_rank"), [(1, 4), (2, 2), (4, 1), (8, 1), (16, 1)])
def test_a_rank_keeps_a_whole_head_of_keys_and_values(tp: int, kv_heads_on_rank: int) -> None:
    qkv, out = GqaShape(layers=1, heads=16, kv_heads=4, head_dim=10).matrices(hidden=100)
    assert qkv.elements_on(tp) == 100 * 10 * (16 / tp + 2 * kv_heads_on_rank)
    assert out.elements_on(tp) == 16 * 10 * 100 / tp
