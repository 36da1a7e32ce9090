"""Seconds of exchanges between ranks: measured points, scaled to other bandwidths and numbers of ranks."""

from __future__ import annotations

from bisect import bisect_right

from samovar.spec.device import Device
from samovar.spec.kernels import Collective, Kernels

ACTIVATION_BYTES = 2
"""bf16 between layers."""
DISPATCH_BYTES = 3
"""Of an element that goes to an expert and back: 8 bits out, 16 back."""


class Exchange:
    """One kind of collective among `ranks` devices. Latency stays, the rest scales with bandwidth and with the share
    of the bytes that leaves a rank, (ranks - 1) / ranks. A group that outgrows the scale-up network runs at the pace
    of its network adapters."""

    def __init__(self, measured: Collective, device: Device, ranks: int) -> None:
        self.ranks = ranks
        first, *_ = measured.points
        bandwidth, latency = device.scale_up.bytes_per_s, first[1]
        if ranks > device.scale_up.ranks:
            rdma = device.link("rdma")
            bandwidth = min(bandwidth, rdma.out_bytes_per_s)
            latency += rdma.latency_s
        share = ((ranks - 1) / ranks) / ((measured.ranks - 1) / measured.ranks)
        scale = share * measured.bytes_per_s / bandwidth
        self._bytes = [point[0] for point in measured.points]
        self._seconds = [latency + (point[1] - first[1]) * scale for point in measured.points]

    def seconds(self, num_bytes: float) -> float:
        """0 for a single rank."""
        if self.ranks == 1:
            return 0.0
        sizes, times = self._bytes, self._seconds
        above = min(max(bisect_right(sizes, num_bytes), 1), len(sizes) - 1)
        low, high = sizes[above - 1], sizes[above]
        return times[above - 1] + (times[above] - times[above - 1]) * (num_bytes - low) / (high - low)


class Exchanges:
    """All that a layout needs: `tp` ranks that share a rank's work, `devices` in the whole DP group."""

    def __init__(self, device: Device, kernels: Kernels, tp: int, dcp: int, devices: int) -> None:
        def among(kind: str, ranks: int) -> Exchange:
            return Exchange(kernels.collectives[kind], device, ranks)

        self.all_reduce = among("all_reduce", tp)
        self.dcp_gather = among("all_gather", dcp)
        self.dcp_all_to_all = among("all_to_all", dcp)
        self.expert_gather = among("all_gather", devices)
        self.expert_dispatch = among("dispatch", devices)
