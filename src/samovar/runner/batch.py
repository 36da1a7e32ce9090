"""From a plan's chunks and the runner's request states to the batch a model runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from samovar.base.ids import RequestId
from samovar.core.plan import Chunk
from samovar.kernels.rows import make_rows
from samovar.models.batch import ForwardBatch
from samovar.runner.sampler import SamplingRow
from samovar.runner.state import RunnerRequest


@dataclass(frozen=True, slots=True)
class StepBatch:
    """`samples[i]` says whose token row i of the logits becomes; `sampling_chunks[i]` is that chunk's index."""

    forward: ForwardBatch
    samples: tuple[SamplingRow, ...]
    sampling_chunks: tuple[int, ...]


def build_batch(chunks: Sequence[Chunk], states: Mapping[RequestId, RunnerRequest], block_tokens: int) -> StepBatch:
    """Reads group 0's tables, already extended by the plan, and refers to them: they change with the next plan, not
    before the step has ended. A chunk that was built on a failed step is left out: the
    core drops whatever it would give, and the others in the step owe it nothing."""
    runnable = [
        (index, chunk)
        for index, chunk in enumerate(chunks)
        if states[chunk.request_id].can_run(chunk.start + chunk.num_tokens)
    ]
    total = sum(chunk.num_tokens for _, chunk in runnable)
    token_ids = np.empty(total, dtype=np.int64)
    positions = np.empty(total, dtype=np.int64)
    slots = np.empty(total, dtype=np.int64)
    tables = [states[chunk.request_id].tables[0] for _, chunk in runnable]
    samples: list[SamplingRow] = []
    sampling_chunks: list[int] = []
    logit_rows: list[int] = []
    at = 0
    for (index, chunk), blocks in zip(runnable, tables, strict=True):
        state = states[chunk.request_id]
        table = blocks.view()
        end = chunk.start + chunk.num_tokens
        assert chunk.num_tokens > 0, f"chunk of request {chunk.request_id} is empty"
        assert len(table) * block_tokens >= end, f"table of request {chunk.request_id} ends before position {end}"
        to = at + chunk.num_tokens
        if chunk.num_tokens == 1:
            token_ids[at] = state.token(chunk.start)
            positions[at] = chunk.start
            slots[at] = int(table[chunk.start // block_tokens]) * block_tokens + chunk.start % block_tokens
        else:
            place = np.arange(chunk.start, end, dtype=np.int64)
            token_ids[at:to] = state.span(chunk.start, end)
            positions[at:to] = place
            slots[at:to] = table[place // block_tokens] * block_tokens + place % block_tokens
        if chunk.samples:
            logit_rows.append(to - 1)
            sampling_chunks.append(index)
            output = None if state.grammar is None else state.output(end)
            position = end - state.num_prompt_tokens
            row = SamplingRow(chunk.request_id, state.sampling, position, state.counts, state.grammar, output)
            samples.append(row)
        at = to
    forward = ForwardBatch(
        token_ids=torch.from_numpy(token_ids),
        positions=torch.from_numpy(positions),
        slots=torch.from_numpy(slots),
        rows=make_rows(
            [chunk.num_tokens for _, chunk in runnable],
            [chunk.start for _, chunk in runnable],
            [blocks.view() for blocks in tables],
            block_tokens,
            [blocks.address for blocks in tables],
        ),
        logit_rows=torch.tensor(logit_rows, dtype=torch.int64),
    )
    return StepBatch(forward, tuple(samples), tuple(sampling_chunks))
