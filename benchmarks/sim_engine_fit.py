"""What one run of the real engine says of its machine: seconds of a step, and of a request outside the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.sim_engine_real import RealRun
import numpy as np

from samovar.runner.step_log import StepLine
from samovar.sim.cost.fitted import FittedModel, StepCoefficients, fit_coefficients
from samovar.sim.cost.shape import Chunk, StepShape
from samovar.sim.settings import FrontEnd


@dataclass(frozen=True, slots=True)
class MachineFit:
    coefficients: StepCoefficients
    front_end: FrontEnd

    @property
    def model(self) -> FittedModel:
        return FittedModel(self.coefficients)

    @property
    def words(self) -> str:
        step, front = self.coefficients, self.front_end
        return (
            f"a step {1e3 * step.base_s:.2f} ms, one with a prompt {1e3 * step.prefill_step_s:.2f} more, a row "
            f"{1e3 * step.decode_row_s:.3f}, 1k of context {1e6 * step.context_token_s:.2f}, 1k of prompt "
            f"{1e6 * step.prefill_token_s:.0f} and {1e9 * step.prefill_pair_s:.0f} per 1k attended to; a request "
            f"{1e3 * front.request_s:.1f} ms, 1k of its prompt {1e6 * front.prompt_token_s:.2f}, an answer's token "
            f"{1e3 * front.output_token_s:.2f}"
        )


def fit_machine(run: RealRun) -> MachineFit:
    return MachineFit(fit_coefficients(rows_of(run)), _front_end(run))


def rows_of(run: RealRun) -> list[tuple[StepShape, float]]:
    return [(_shape(line), line.seconds) for line in run.steps]


def _shape(line: StepLine) -> StepShape:
    return StepShape(line.decodes, line.context_tokens, 1, tuple(Chunk(new, before) for new, before in line.chunks))


def explained(rows: Sequence[tuple[StepShape, float]], model: FittedModel) -> dict[str, float]:
    """Of each kind of step, the fit's time over the measured one."""
    sums: dict[str, list[float]] = {}
    for shape, seconds in rows:
        kind = "decode" if not shape.chunks else "mixed" if shape.decode_sequences else "prefill"
        for name in (kind, "all"):
            total = sums.setdefault(name, [0.0, 0.0])
            total[0] += model.step_s([shape]).total_s
            total[1] += seconds
    return {name: said / took for name, (said, took) in sorted(sums.items())}


def _front_end(run: RealRun) -> FrontEnd:
    """Client and core share the machine's clock: `began_s` brings the records' times onto it."""
    pairs = list(zip(run.records, run.served, strict=True))
    before = [one.submitted_s - run.began_s - record.start_s for record, one in pairs]
    after = [record.first_s + run.began_s - one.first_s for record, one in pairs if record.first_s is not None]
    tokens = [float(record.prompt_tokens) for record in run.records]
    slope = max(0.0, float(np.polyfit(tokens, before, 1)[0])) if len(set(tokens)) > 1 else 0.0
    request = median(seconds - slope * count for seconds, count in zip(before, tokens, strict=True))
    return FrontEnd(max(0.0, request), slope, max(0.0, median(after)))
