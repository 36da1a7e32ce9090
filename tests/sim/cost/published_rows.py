"""Published figures beside what the model says of them, as docs/simulator.md shows them."""

from __future__ import annotations

from dataclasses import dataclass

from samovar.sim.cost.capacity import Memory, capacity_tokens
from samovar.sim.cost.layout import Layout
from samovar.sim.cost.roofline import CostModel
from samovar.sim.cost.shape import Chunk, StepShape
from samovar.spec.catalog import load_device, load_kernels, load_model

B200 = load_device("B200")
SYNC_S = load_kernels("blackwell").step.sync_s

V4_DEP8 = CostModel(load_model("deepseek-v4-pro"), B200, Layout(dp=8, ep=True, moe_comm="fused"))
T6 = StepShape(8, 8 * 127_000, 4)
"""64 sessions over 8 ranks, 127k tokens each, 3 drafts."""
T6_MIXED = [
    StepShape(8, 8 * 127_000, 4, (Chunk(512, 123_000), Chunk(512, 60_000))),
    *[StepShape(8, 8 * 127_000, 4, (Chunk(400, 123_000),))] * 7,
]
"""The slowest rank computes two chunks of 512, the others 400 tokens, which is about the mean."""
T6_LEAST = [StepShape(6, 6 * 127_000, 4, (Chunk(16, 100_000),)), *[StepShape(6, 6 * 127_000, 4)] * 7]
T6_PROMPT = [StepShape(chunks=(Chunk(16, 100_000),)), *[StepShape()] * 7]
"""A prompt that was all but cached."""
R1_DEP8 = CostModel(load_model("deepseek-r1"), load_device("GB200"), Layout(dp=8, ep=True))
T1 = [StepShape(88, 88 * 1100), *[StepShape(80, 80 * 1100)] * 7]
"""24 requests/s of 1k + 200 tokens: by Little's law about 80 a rank, and some more on the fullest."""
T1_MIXED = [
    StepShape(80, 80 * 1100, 1, (Chunk(1000),) * 3),
    *[StepShape(80, 80 * 1100, 1, (Chunk(1000),))] * 7,
]
"""0.75 new requests a rank and step; the fullest of eight gets three."""


@dataclass(frozen=True)
class PublishedRow:
    name: str
    published: float
    model: float
    unit: str

    def line(self) -> str:
        error = self.model / self.published - 1
        return f"| {self.name} | {self.published:g} {self.unit} | {self.model:.4g} | {100 * error:+.1f} % |"


def all_rows() -> list[PublishedRow]:
    k2 = load_model("kimi-k2.6")

    def tokens(dcp: int) -> float:
        return capacity_tokens(k2, B200, Layout(tp=8, dcp=dcp), Memory()) / 1e6

    def step_ms(model: CostModel, shapes: list[StepShape], less: float = 0.0) -> float:
        return 1e3 * (model.step_s(shapes).total_s - less)

    return [
        PublishedRow("T6, decode step by the engine's log", 31.15, step_ms(V4_DEP8, [T6] * 8, SYNC_S), "ms"),
        PublishedRow("T6, step with prompts by the log", 160, step_ms(V4_DEP8, T6_MIXED, SYNC_S), "ms"),
        PublishedRow("T6, shortest step with both by the log", 115.9, step_ms(V4_DEP8, T6_LEAST, SYNC_S), "ms"),
        PublishedRow("T6, shortest step with prompts alone", 83.5, step_ms(V4_DEP8, T6_PROMPT, SYNC_S), "ms"),
        PublishedRow("T1, decode step as clients see it", 32.1, step_ms(R1_DEP8, T1), "ms"),
        PublishedRow("T1, step with prompts as clients see it", 274.9, step_ms(R1_DEP8, T1_MIXED), "ms"),
        PublishedRow("T2, capacity under TP8", 2.68, tokens(1), "M tokens"),
        PublishedRow("T2, capacity under TP8 and DCP8", 21.5, tokens(8), "M tokens"),
    ]
