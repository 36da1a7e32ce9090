"""How numbers of weights and KV are kept: bytes per element with their scales, and what they are multiplied as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

ComputeType = Literal["fp4", "fp8", "int8", "bf16", "fp32"]
COMPUTE_TYPES: tuple[ComputeType, ...] = get_args(ComputeType)


@dataclass(frozen=True, slots=True)
class NumberFormat:
    name: str
    bytes: float
    """Per element, scales included."""
    compute: ComputeType
    """The products' type where a device has it; bf16 elsewhere."""


FORMATS: dict[str, NumberFormat] = {
    item.name: item
    for item in (
        NumberFormat("fp32", 4.0, "fp32"),
        NumberFormat("bf16", 2.0, "bf16"),
        NumberFormat("fp8", 1.0, "fp8"),  # a scale per 128 x 128, or per tensor: not counted
        NumberFormat("nvfp4", 0.5625, "fp4"),  # an 8-bit scale per 16
        NumberFormat("mxfp4", 0.53125, "fp4"),  # an 8-bit scale per 32
        NumberFormat("int8", 1.0625, "int8"),  # a 16-bit scale per 32, as GGUF's Q8_0
        NumberFormat("q4_1", 0.625, "int8"),  # two 16-bit numbers per 32
    )
}
