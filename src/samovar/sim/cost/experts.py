"""Routed experts: which of them a step's tokens reach, and what reading and multiplying them takes."""

from __future__ import annotations

import math

from samovar.sim.cost.layout import Layout
from samovar.sim.cost.rates import Machine
from samovar.spec.model_shape import ModelShape, MoeShape


def active_experts(moe: MoeShape, tokens: float) -> float:
    """How many different experts `tokens` choose, all being equally likely."""
    missed = math.pow(1.0 - moe.top_k / moe.experts, tokens)
    return moe.experts * (1.0 - missed)


class ExpertCost:
    """One layer's routed experts on one device.

    With expert parallelism a device holds some experts whole and the busiest one is waited for; else it holds a slice
    of each. Reading and multiplying do not overlap where they are about equal, as tiles of one expert wait for its
    weights: they are added as squares, which is within 5 % of the measured knee where the longer of the two alone is
    15 % short.
    """

    def __init__(self, model: ModelShape, moe: MoeShape, machine: Machine, layout: Layout) -> None:
        rates = machine.experts(model.formats.experts)
        self.floor_s = rates.floor_s
        self._moe = moe
        self._read_s = model.expert_parameters * model.formats.experts.bytes * rates.byte_s / layout.devices
        imbalance = machine.kernels.expert_imbalance if layout.ep and layout.devices > 1 else 1.0
        self._token_s = imbalance * 2 * model.expert_parameters * moe.top_k * rates.op_s / layout.devices

    def seconds(self, tokens: float) -> tuple[float, bool]:
        """Of `tokens` of the whole group, without the floor; and whether reading takes longer than multiplying."""
        read = active_experts(self._moe, tokens) * self._read_s
        multiplied = tokens * self._token_s
        return math.hypot(read, multiplied), read >= multiplied
