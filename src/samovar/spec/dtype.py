"""Number formats that weights and KV are computed in, by name and size. Torch knows them in `models.load`."""

from __future__ import annotations

from typing import Literal, get_args

DTypeName = Literal["float32", "bfloat16"]
DTYPES: tuple[DTypeName, ...] = get_args(DTypeName)
ELEMENT_BYTES: dict[DTypeName, int] = {"float32": 4, "bfloat16": 2}
