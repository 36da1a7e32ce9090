"""Number formats that weights and KV are kept and computed in, by name. Torch knows them in `models.load`."""

from __future__ import annotations

from typing import Literal, get_args

DTypeName = Literal["float32", "bfloat16"]
DTYPES: tuple[DTypeName, ...] = get_args(DTypeName)
ELEMENT_BYTES: dict[DTypeName, int] = {"float32": 4, "bfloat16": 2}

KVDTypeName = Literal["float32", "bfloat16", "int8"]
"""int8: 8 bits and a float32 scale per token and head."""
KV_SCALE_BYTES = 4

Quantization = Literal["auto", "none", "int8"]
QUANTIZATIONS: tuple[Quantization, ...] = get_args(Quantization)
"""auto: a GGUF file stays in its own, safetensors in bfloat16; none: plain numbers; int8: 8 bits, a scale per 32."""
