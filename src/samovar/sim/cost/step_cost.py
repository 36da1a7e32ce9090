"""What a step takes, in parts that add up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from samovar.sim.cost.shape import StepShape

Path = Literal["eager", "graph", "mono", "measured"]

PARTS = (
    "projections_s",
    "attention_s",
    "output_s",
    "ffn_s",
    "seam_s",
    "collectives_s",
    "launch_s",
    "head_s",
    "draft_s",
    "prefill_floor_s",
    "host_s",
    "measured_s",
)


class StepCost(msgspec.Struct, frozen=True, gc=False):
    """Seconds. `total_s` is the sum of PARTS; those of a DP group are the slowest rank's."""

    total_s: float
    projections_s: float = 0.0
    attention_s: float = 0.0
    output_s: float = 0.0
    ffn_s: float = 0.0
    """Dense layers, shared and routed experts."""
    seam_s: float = 0.0
    """Norms, residual streams, routing."""
    collectives_s: float = 0.0
    """What computing does not hide."""
    launch_s: float = 0.0
    """Floors of kernels, waiting for a host that launches them, or the stages of mono decode."""
    head_s: float = 0.0
    draft_s: float = 0.0
    prefill_floor_s: float = 0.0
    host_s: float = 0.0
    """Ranks agreeing on a step, sampling, bookkeeping."""
    measured_s: float = 0.0
    """A step that was measured as a whole."""
    bandwidth_s: float = 0.0
    """How much of projections, attention, output, ffn and head memory bandwidth bounds; operations bound the rest."""
    slowest_rank: int = 0
    path: Path = "graph"

    def limits(self) -> dict[str, float]:
        """The same total by what would have to be better: bandwidth, compute, collectives, launch, drafts, prefill
        floor, host, and, for what was only measured as a whole, measured."""
        roofline = self.projections_s + self.attention_s + self.output_s + self.ffn_s + self.head_s
        return {
            "bandwidth": self.bandwidth_s,
            "compute": roofline - self.bandwidth_s,
            "collectives": self.collectives_s,
            "launch": self.launch_s + self.seam_s,
            "drafts": self.draft_s,
            "prefill floor": self.prefill_floor_s,
            "host": self.host_s,
            "measured": self.measured_s,
        }

    @property
    def limit(self) -> str:
        """The largest of `limits`."""
        found = self.limits()
        return max(found, key=found.__getitem__)


class StepModel(Protocol):
    """Seconds of a step of one DP group."""

    def step_s(self, shapes: Sequence[StepShape]) -> StepCost:
        """`shapes[i]` is rank i's; as many as the group has ranks."""
        ...
