"""The small ops of every table column against their definitions in float64."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import torch

from samovar.kernels.table import CPU, REFERENCE, Ops

pytestmark = [pytest.mark.torch, pytest.mark.parametrize("ops", [REFERENCE, CPU], ids=["reference", "cpu"])]
DTYPES = {torch.float32: 1e-6, torch.bfloat16: 1.6e-2}
"""Two roundings to 24 bits; to 8 bits."""


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm(ops: Ops, dtype: torch.dtype) -> None:
    x, weight = torch.randn(5, 3, 48).to(dtype), torch.randn(3, 48).to(dtype)
    wide = x.double()
    wanted = wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-3).sqrt() * weight.double()
    out = ops.rms_norm(x, weight, 1e-3)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), wanted, atol=DTYPES[dtype], rtol=DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rope_turns_each_pair(ops: Ops, dtype: torch.dtype) -> None:
    x, angles = torch.randn(7, 2, 10).to(dtype), torch.rand(7, 5) * 6
    pairs = torch.complex(x[..., :5].double(), x[..., 5:].double()) * torch.exp(1j * angles.double())[:, None]
    out = ops.rope(x, angles.cos(), angles.sin())
    assert out.dtype == dtype
    torch.testing.assert_close(
        out.double(), torch.cat((pairs.real, pairs.imag), -1), atol=DTYPES[dtype], rtol=DTYPES[dtype]
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_swiglu(ops: Ops, dtype: torch.dtype) -> None:
    gate_up = torch.randn(6, 40).to(dtype)
    before = gate_up.clone()
    gate, up = gate_up.double().chunk(2, -1)
    out = ops.swiglu(gate_up)
    assert out.dtype == dtype and torch.equal(gate_up, before)
    torch.testing.assert_close(out.double(), gate / (1 + (-gate).exp()) * up, atol=DTYPES[dtype], rtol=DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_write_kv_touches_its_slots_only(ops: Ops, dtype: torch.dtype) -> None:
    keys, values = torch.zeros(4, 3, 2, 8, dtype=dtype), torch.zeros(4, 3, 2, 8, dtype=dtype)
    qkv = torch.randn(3, 6, 8).to(dtype)
    ops.write_kv(keys, values, torch.tensor([11, 0, 4]), qkv[:, :2], qkv[:, 2:4])
    wanted = torch.zeros(12, 2, 8, dtype=dtype)
    wanted[[11, 0, 4]] = qkv[:, :2]
    assert torch.equal(keys.view(12, 2, 8), wanted)
    wanted[[11, 0, 4]] = qkv[:, 2:4]
    assert torch.equal(values.view(12, 2, 8), wanted)
