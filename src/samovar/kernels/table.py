"""The table of ops. Every op has one signature and a reference in plain torch; each faster version is a column here and
is compared with the reference by the tests. Tensors in, tensors out: no op knows of models or requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from samovar.kernels.cpu.paged_attention import paged_attention as cpu_paged_attention
from samovar.kernels.ref.kv_write import write_kv
from samovar.kernels.ref.mlp import swiglu
from samovar.kernels.ref.norm import rms_norm
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
