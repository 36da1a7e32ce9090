"""A machine of round numbers, and a tiny model, for what needs no measuring."""

from __future__ import annotations

from samovar.bench.compute.bounds import MachineLimits, MatrixSize, ModelSize, Peak
from samovar.spec.model import ModelSpec, RopeSpec

LIMITS = MachineLimits(
    isa="amx",
    threads=2,
    read_bytes_per_s=10e9,
    read_one_thread_bytes_per_s=6e9,
    read_array_bytes=2 << 30,
    read_again_bytes_per_s=20e9,
    read_again_array_bytes=96 << 20,
    peaks={"bf16": Peak(100e9, 80e9), "int8": Peak(150e9, 200e9)},
)

SPEC = ModelSpec(
    architecture="llama",
    vocab_size=100,
    hidden_size=64,
    intermediate_size=96,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    rms_norm_eps=1e-5,
    rope=RopeSpec(10_000.0),
    max_position_embeddings=256,
)

LAYER = (
    MatrixSize("q4_1", 256, 64, 1_000),
    MatrixSize("q4_1", 64, 128, 1_000),
    MatrixSize("q4_1", 192, 64, 1_000),
    MatrixSize("q4_1", 64, 96, 1_000),
)
HEAD = MatrixSize("bf16", 100, 64, 12_800)
SIZE = ModelSize(SPEC, (LAYER, LAYER, LAYER), HEAD)
