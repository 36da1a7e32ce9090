"""A machine whose figures are round, so that times can be worked out by hand: kernels reach the peaks, at once."""

from __future__ import annotations

from dataclasses import replace

from samovar.spec.attention_shape import CompressedShape, GqaShape, MlaShape
from samovar.spec.device import Device, ScaleUp
from samovar.spec.kernels import (
    AttentionEfficiency,
    Collective,
    Efficiency,
    Kernels,
    Launch,
    MonoEfficiency,
    StepOverhead,
)
from samovar.spec.link import Link
from samovar.spec.model_shape import DraftShape, ModelShape, MoeShape, WeightFormats
from samovar.spec.number_format import FORMATS

BYTES_PER_S = 1e12
FLOPS = 1e15
NETWORK = 1e11
"""Of a collective, behind a latency of 10 us."""

DEVICE = Device(
    name="plain",
    source="a test",
    date="2026",
    memory_bytes=100_000_000_000,
    reserved_bytes=1_000_000_000,
    collective_bytes=500_000_000,
    memory_bytes_per_s=BYTES_PER_S,
    flops={"bf16": FLOPS, "fp8": 2 * FLOPS, "fp4": 4 * FLOPS},
    scale_up=ScaleUp(NETWORK, 8),
    links={"rdma": Link("rdma", "a test", NETWORK / 4, NETWORK / 4, 5e-6)},
    kernels="none",
)

_FULL = Efficiency(0.0, 1.0, 1.0)
_ATTENTION = AttentionEfficiency(0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0)
_EXCHANGE = Collective(8, NETWORK, ((0.0, 10e-6), (1e9, 10e-6 + 1e9 / NETWORK)))
KINDS = ("gqa", "mla", "compressed")

KERNELS = Kernels(
    name="plain",
    source="a test",
    date="2026",
    products={"bf16": _FULL, "fp8": _FULL, "fp4": _FULL},
    experts={"bf16": _FULL, "fp8": _FULL, "fp4": _FULL},
    expert_imbalance=1.0,
    attention={(kind, kv): _ATTENTION for kind in KINDS for kv in ("bf16", "fp8")},
    collectives={name: _EXCHANGE for name in ("all_reduce", "all_gather", "all_to_all", "dispatch")},
    launch=Launch(0.0, 0.0, 0),
    mono=MonoEfficiency(0.0, dict.fromkeys(KINDS, 5), dict.fromkeys(KINDS, 1), 1.0, 1.0, 64),
    step=StepOverhead(0.0, 0.0, 0.0, 0.0, 0.0),
)

BF16 = FORMATS["bf16"]
GQA = ModelShape(
    name="gqa",
    source="a test",
    date="2026",
    hidden_size=1000,
    vocab_size=5000,
    tied_embeddings=False,
    block_tokens=16,
    attention=(GqaShape(layers=10, heads=16, kv_heads=4, head_dim=100),),
    dense_layers=10,
    dense_intermediate_size=3000,
    moe=None,
    draft=None,
    formats=WeightFormats(BF16, BF16, BF16, BF16),
    kv_format=BF16,
    seam_kernels=2,
)
MOE = replace(
    GQA,
    name="moe",
    dense_layers=2,
    moe=MoeShape(layers=8, experts=64, top_k=4, intermediate_size=500, shared_intermediate_size=200),
)
MLA = replace(
    MOE,
    name="mla",
    attention=(MlaShape(10, 16, q_lora_rank=300, kv_lora_rank=200, nope_head_dim=60, rope_head_dim=40, v_head_dim=80),),
    kv_format=FORMATS["fp8"],
)
_HCA = CompressedShape(
    5, 16, 200, q_lora_rank=300, o_groups=4, o_lora_rank=100, window=128, ratio=128, record_bytes=300.0
)
_CSA = replace(_HCA, ratio=4, index_heads=8, index_head_dim=50, index_topk=256, index_record_bytes=40.0)
V4 = replace(
    MLA,
    name="v4",
    attention=(_CSA, _HCA),
    draft=DraftShape(replace(_HCA, layers=1, ratio=0)),
)
