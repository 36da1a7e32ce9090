"""A runner whose model computes everything and then wants the token that a script says next.

Logits are replaced, nothing else: prompts, prefill, KV, sampling parameters, masks and stop tokens work as ever.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from samovar.core.plan import Start, StepPlan, StepResult
from samovar.models.batch import ForwardBatch, KVCache
from samovar.models.load import Model
from samovar.runner.local import NUM_GROUPS, LocalRunner
from samovar.runner.state import RunnerRequest
from samovar.spec.model import ModelSpec
from tests.agents.script import Script

WANTED = 1000.0
"""A logit beside zeros: whatever the temperature, no other token is drawn unless this one is masked."""


class ScriptedModel:
    """`wanted[i]`: the token for row i of the next forward's logits. The runner's thread sets it and runs us."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.wanted: list[int] = []

    @property
    def spec(self) -> ModelSpec:
        return self._model.spec

    def forward(self, batch: ForwardBatch, cache: KVCache) -> Tensor:
        logits = self._model.forward(batch, cache)
        assert len(logits) == len(self.wanted), f"{len(logits)} rows of logits, {len(self.wanted)} tokens wanted"
        assert bool(torch.isfinite(logits).all()), "the model gave logits that are no numbers"
        logits.zero_()
        logits[torch.arange(len(self.wanted)), torch.tensor(self.wanted, dtype=torch.int64)] = WANTED
        return logits


class ScriptedRequest(RunnerRequest):
    __slots__ = ("line",)

    def __init__(self, start: Start, vocab_size: int, script: Script) -> None:
        super().__init__(start, NUM_GROUPS, vocab_size)
        prompt = np.frombuffer(start.token_ids, dtype="<i4")[: start.num_prompt_tokens]
        self.line = script.line(prompt.tolist())

    def token_at(self, output_position: int) -> int:
        """After the script's end EOS again: whoever ignores it gets more of it."""
        return self.line[min(output_position, len(self.line) - 1)]


class ScriptedRunner(LocalRunner):
    def __init__(self, script: Script, model: Model, cache: KVCache, **options: object) -> None:
        self._script = script
        self._scripted = ScriptedModel(model)
        super().__init__(self._scripted, cache, **options)  # type: ignore[arg-type]

    def _begin(self, start: Start) -> RunnerRequest:
        return ScriptedRequest(start, self._scripted.spec.vocab_size, self._script)

    def _compute(self, plan: StepPlan) -> StepResult:
        self._scripted.wanted = [
            state.token_at(end - state.num_prompt_tokens)
            for chunk in plan.chunks
            if isinstance(state := self._states[chunk.request_id], ScriptedRequest)
            and chunk.samples
            and state.can_run(end := chunk.start + chunk.num_tokens)
        ]
        return super()._compute(plan)
