"""The table of ops. Every op has one signature and a reference; each faster version is a column here and is compared
with the reference by the tests. Tensors in, tensors out: no op knows of models or requests.

There are two sets: `Ops` on torch tensors of one dtype, and `PackedOps` (in `packed_ops`) on packed weights and tiles
of KV. The second set's fast column is `cpu.native_ops`, which exists only where the extension was compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from samovar.kernels.cpu.paged_attention import paged_attention as cpu_paged_attention
from samovar.kernels.packed_ops import PackedOps
from samovar.kernels.ref import packed_linear, records, tiled_attention
from samovar.kernels.ref.kv_write import write_kv
from samovar.kernels.ref.mlp import swiglu
from samovar.kernels.ref.mono import StageInterpreter
from samovar.kernels.ref.norm import rms_norm
from samovar.kernels.ref.pack import pack
from samovar.kernels.ref.paged_attention import paged_attention
from samovar.kernels.ref.rope import rope
from samovar.kernels.rows import RowPlan


@dataclass(frozen=True, slots=True)
class Ops:
    """One version of every op; shapes and dtypes are in the docstrings under `ref/`."""

    rms_norm: Callable[[Tensor, Tensor, float], Tensor]
    rope: Callable[[Tensor, Tensor, Tensor], Tensor]
    swiglu: Callable[[Tensor], Tensor]
    write_kv: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], None]
    paged_attention: Callable[[Tensor, Tensor, Tensor, Sequence[RowPlan], float], Tensor]


REFERENCE = Ops(rms_norm, rope, swiglu, write_kv, paged_attention)
CPU = replace(REFERENCE, paged_attention=cpu_paged_attention)

_PLAIN = PackedOps(
    name="reference",
    packed_bytes=records.packed_bytes,
    pack=pack,
    matrix=packed_linear.Matrix,
    linear=packed_linear.linear,
    linear_swiglu=packed_linear.linear_swiglu,
    embed=packed_linear.embed,
    rms_norm=packed_linear.rms_norm,
    rope=packed_linear.rope,
    write_kv=tiled_attention.write_kv,
    attention=tiled_attention.attention,
    argmax=packed_linear.argmax,
)


def packed_reference(bf16_inputs: bool) -> PackedOps:
    """Plain numpy, with either arithmetic of quantised matrices (`PackedOps.bf16_inputs`)."""
    plain = replace(_PLAIN, bf16_inputs=bf16_inputs, matrix=partial(packed_linear.Matrix, bf16_inputs=bf16_inputs))
    return replace(plain, mono=lambda model, layers: StageInterpreter(plain, model, layers))


PACKED_REFERENCE = packed_reference(bf16_inputs=False)
