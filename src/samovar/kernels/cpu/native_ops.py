"""The native kernels as a record of ops: one instruction set and one team of threads."""

from __future__ import annotations

from samovar.kernels.cpu import _native
from samovar.kernels.packed_ops import Float32Array, KVTiles, PackedOps
from samovar.kernels.rows import Rows


def native_ops(isa: str, threads: int) -> PackedOps:
    """`isa`: one of `NativeLibrary.isa_levels`. The threads start with the first op. Import this module only where
    `native_library()` found something."""
    context = _native.Context(isa, threads)

    def attention(
        q: Float32Array,
        keys: KVTiles,
        values: KVTiles,
        rows: Rows,
        scale: float,
        out: Float32Array,
    ) -> None:
        context.attention(q, keys, values, rows.firsts, rows.counts, rows.starts, rows.addresses, scale, out)

    def rms_norm(x: Float32Array, weight: Float32Array, eps: float, out: Float32Array) -> None:
        if x.ndim == 2:
            context.rms_norm(x, weight, eps, out)
        elif x.shape[0] < x.shape[1]:
            for token, target in zip(x, out, strict=True):
                context.rms_norm(token, weight, eps, target)
        else:
            for head in range(x.shape[1]):
                context.rms_norm(x[:, head], weight, eps, out[:, head])

    return PackedOps(
        name=isa,
        packed_bytes=_native.packed_bytes,
        pack=_native.pack,
        matrix=_native.Matrix,
        linear=context.linear,
        linear_swiglu=context.linear_swiglu,
        embed=context.embed,
        rms_norm=rms_norm,
        rope=context.rope,
        write_kv=context.write_kv,
        attention=attention,
        argmax=context.argmax,
        bf16_inputs=context.bf16_inputs,
        draw=context.draw,
        mono=lambda model, layers: _native.MonoDecoder(context, model, layers),
    )
