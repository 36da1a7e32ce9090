"""Weights of a rank and tokens of KV beside them, by hand and where nothing fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samovar.base.errors import ConfigError
from samovar.sim.cost.capacity import Memory, activation_bytes, capacity_tokens, kv_bytes, least_tp, weight_bytes
from samovar.sim.cost.layout import Layout
from samovar.spec.catalog import load_device, load_model
from tests.sim.cost.plain import DEVICE, GQA, MLA, MOE, V4

EXPERTS = 8 * 64 * 3 * 1000 * 500 * 2
SHARED = 8 * 3 * 1000 * 200 * 2
ROUTERS = 8 * 1000 * 64 * 2
DENSE = 2 * 3 * 1000 * 3000 * 2
EMBEDDINGS = 2 * 5000 * 1000 * 2


def test_weights_of_a_rank() -> None:
    attention = 10 * 1000 * (24 + 16) * 100 * 2
    assert weight_bytes(GQA, Layout()) == attention + 10 * 3 * 1000 * 3000 * 2 + EMBEDDINGS
    whole = attention + EXPERTS + SHARED + ROUTERS + DENSE + EMBEDDINGS
    assert weight_bytes(MOE, Layout()) == whole
    heads = 10 * 1000 * (16 / 8 + 2 * 1 + 16 / 8) * 100 * 2  # a whole head of keys and values on each of eight ranks
    tp8 = heads + (EXPERTS + SHARED + DENSE + EMBEDDINGS) / 8 + ROUTERS
    assert weight_bytes(MOE, Layout(tp=8)) == weight_bytes(MOE, Layout(tp=8, ep=True)) == tp8
    assert weight_bytes(MOE, Layout(dp=8, ep=True)) == whole - EXPERTS * 7 / 8


def test_every_rank_repeats_what_cannot_be_divided() -> None:
    down, divided = 1000 * 540, 300 * 16 * 100 + 200 * 16 * 140 + 16 * 80 * 1000
    rest = (EXPERTS + SHARED + DENSE + EMBEDDINGS) / 8 + ROUTERS
    assert weight_bytes(MLA, Layout(tp=8)) == pytest.approx(10 * (down + divided / 8) * 2 + rest)


def test_a_draft_layer_is_a_layer() -> None:
    one = replace(V4, attention=(V4.draft.attention,), dense_layers=0, moe=replace(V4.moe, layers=1), vocab_size=1)  # type: ignore[union-attr,type-var]
    extra = weight_bytes(V4, Layout(), drafts=True) - weight_bytes(V4, Layout())
    assert extra == pytest.approx(weight_bytes(one, Layout()) - 2 * 1000 * 2)


def test_capacity_by_hand() -> None:
    memory = Memory(gpu_memory_utilization=0.5, max_num_batched_tokens=1000)
    taken = weight_bytes(GQA, Layout()) + 1e9 + 2.0 * 1000 * (4 * 1000 + 3 * 3000)
    left = 0.5 * 100e9 - taken
    assert kv_bytes(GQA, DEVICE, Layout(), memory) == pytest.approx(left)
    assert capacity_tokens(GQA, DEVICE, Layout(), memory) == int(left / (10 * 2 * 4 * 100 * 2)) // 16 * 16


def test_several_ranks_keep_buffers_and_less_each() -> None:
    memory = Memory(max_num_batched_tokens=0)
    one = kv_bytes(GQA, DEVICE, Layout(), memory) + weight_bytes(GQA, Layout())
    eight = kv_bytes(GQA, DEVICE, Layout(tp=8), memory) + weight_bytes(GQA, Layout(tp=8))
    assert one - eight == DEVICE.collective_bytes


def test_dcp_multiplies_tokens_and_blocks() -> None:
    plain = capacity_tokens(MLA, DEVICE, Layout(tp=8), Memory())
    dcp = capacity_tokens(MLA, DEVICE, Layout(tp=8, dcp=8), Memory())
    assert dcp == pytest.approx(8 * plain, rel=1e-3) and dcp % (16 * 8) == 0


def test_windows_take_room() -> None:
    few, many = (kv_bytes(V4, DEVICE, Layout(), Memory(max_num_seqs=n)) for n in (1, 101))
    assert few - many == pytest.approx(100 * 10 * 128 * 300)


def test_activations_are_divided_with_heads_and_experts() -> None:
    assert activation_bytes(MOE, Layout(), 100) == 2 * 100 * (4000 + max(9000, 3200, 4 * (1000 + 1500)))
    assert activation_bytes(MOE, Layout(tp=8), 100) == 2 * 100 * (4000 + 4 * (1000 + 1500 / 8))
    assert activation_bytes(MOE, Layout(dp=8, ep=True), 100) == activation_bytes(MOE, Layout(), 100)


def test_what_does_not_fit_is_said_with_sizes() -> None:
    with pytest.raises(
        ConfigError, match=r"DeepSeek-R1 on 1 x H200 \(tp 1, dp 1\): a rank needs 4\d\d\.\d GB .* 136.3"
    ):
        capacity_tokens(load_model("deepseek-r1"), load_device("H200"), Layout(), Memory())
    with pytest.raises(ConfigError, match=r"--gpu-memory-utilization is 1.2; it must be more than 0 and at most 1"):
        capacity_tokens(GQA, DEVICE, Layout(), Memory(gpu_memory_utilization=1.2))
    with pytest.raises(ConfigError, match="--tensor-parallel-size is 3"):
        capacity_tokens(GQA, DEVICE, Layout(tp=3), Memory())


def test_the_fewest_devices_that_are_enough() -> None:
    kimi, b200, gb10 = load_model("kimi-k2.6"), load_device("b200"), load_device("gb10")
    least = least_tp(kimi, b200, Memory())
    assert least == 4 and kv_bytes(kimi, b200, Layout(tp=least), Memory()) > 0
    with pytest.raises(ConfigError, match="with --tensor-parallel-size alone 4 devices are enough"):
        kv_bytes(kimi, b200, Layout(tp=least // 2), Memory())
    nowhere = Memory(gpu_memory_utilization=0.01)
    assert least_tp(kimi, gb10, nowhere) is None
    with pytest.raises(ConfigError, match=r"and may use 1\.3$"):
        kv_bytes(kimi, gb10, Layout(), nowhere)
