"""A device's peaks and its kernels' efficiencies, multiplied out: seconds per byte and per operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from samovar.base.errors import ConfigError
from samovar.spec.device import Device
from samovar.spec.kernels import AttentionEfficiency, Efficiency, Kernels
from samovar.spec.number_format import ComputeType, NumberFormat


@dataclass(frozen=True, slots=True)
class Rates:
    """`floor_s + max(bytes * byte_s, operations * op_s)`."""

    floor_s: float
    byte_s: float
    op_s: float


@dataclass(frozen=True, slots=True)
class AttentionRates:
    byte_s: float
    op_s: float
    prefill_op_s: float
    floor_s: float
    """For the heads asked for, without the index."""
    index_floor_s: float
    row_s: float
    """Of a decoding row, for the heads asked for."""
    prefill_row_s: float


class Machine:
    """Rates of one device. `mono`: those of mono decode, whose stages have no floors of their own."""

    def __init__(self, device: Device, kernels: Kernels, *, mono: bool = False) -> None:
        self.device = device
        self.kernels = kernels
        self.mono = mono

    def products(self, weights: NumberFormat) -> Rates:
        return self._rates(self.kernels.products, weights.compute)

    def experts(self, weights: NumberFormat) -> Rates:
        return self._rates(self.kernels.experts, weights.compute)

    def attention(self, kind: str, kv: NumberFormat, heads: int) -> AttentionRates:
        """`heads` that one rank computes. Raises ConfigError where there are no figures for that KV."""
        found = self._attention_efficiency(kind, kv)
        bandwidth = self.device.memory_bytes_per_s
        peak = self.device.flops[self.device.compute_type(kv.compute)]
        memory, compute = found.memory, found.compute
        if self.mono:
            memory = self.kernels.mono.memory
        return AttentionRates(
            byte_s=1 / (memory * bandwidth),
            op_s=1 / (compute * peak),
            prefill_op_s=1 / (found.prefill_compute * peak),
            floor_s=0.0 if self.mono else found.floor_s + heads * found.floor_per_head_s,
            index_floor_s=0.0 if self.mono else found.index_floor_s,
            row_s=heads * found.row_head_s,
            prefill_row_s=heads * found.prefill_row_head_s,
        )

    def _attention_efficiency(self, kind: str, kv: NumberFormat) -> AttentionEfficiency:
        found = self.kernels.attention.get((kind, kv.compute)) or self.kernels.attention.get((kind, "bf16"))
        if found is None:
            raise ConfigError(f"kernel file {self.kernels.name} has no attention table for {kind} over {kv.compute}")
        return found

    def _rates(self, figures: Mapping[ComputeType, Efficiency], wanted: ComputeType) -> Rates:
        """Read in the weights' own format, multiplied as what the device has units for."""
        computed = self.device.compute_type(wanted)
        read = figures.get(wanted, figures["bf16"])
        multiplied = figures.get(computed, figures["bf16"])
        memory, compute = read.memory, multiplied.compute
        if self.mono:
            memory, compute = self.kernels.mono.memory, self.kernels.mono.compute
        return Rates(
            floor_s=0.0 if self.mono else read.floor_s,
            byte_s=1 / (memory * self.device.memory_bytes_per_s),
            op_s=1 / (compute * self.device.flops[computed]),
        )
