"""The local runner fed with hand-written plans, against transformers' greedy tokens."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("torch")
from tests.runner.conftest import Tiny
import torch

from samovar.base.ids import BlockId, RequestId, TransferId
from samovar.base.keys import pack_tokens
from samovar.core.plan import Chunk, Copy, Load, Redirect, Start, StepPlan, StepResult, Store
from samovar.core.sampling import SamplingParams
from samovar.models.batch import ForwardBatch, KVCache
from samovar.models.checkpoint import open_folder
from samovar.models.llama import LlamaModel
from samovar.models.load import load_model, new_cache
from samovar.runner.local import LocalRunner

pytestmark = pytest.mark.torch

BLOCK = 4
PROMPT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46]
GREEDY = SamplingParams(max_tokens=50, temperature=0)


@pytest.fixture(scope="module")
def model(tiny: Tiny) -> LlamaModel:
    return load_model(open_folder(tiny.folder), "float32")


@pytest.fixture
def runner(model: LlamaModel) -> LocalRunner:
    runner = LocalRunner(model, new_cache(model.spec, 64, BLOCK, "float32"))
    yield runner
    runner.close()


def start(request: int, prompt: list[int], sampling: SamplingParams = GREEDY, num_prompt: int | None = None) -> Start:
    return Start(RequestId(request), pack_tokens(prompt), num_prompt or len(prompt), sampling)


def chunk(request: int, begin: int, end: int, blocks: tuple[int, ...] = (), **values: object) -> Chunk:
    new = (tuple(BlockId(b) for b in blocks),) if blocks else ()
    return Chunk(RequestId(request), begin, end - begin, new, **values)  # type: ignore[arg-type]


def decode(
    runner: LocalRunner, step: int, request: int, at: int, count: int, blocks: dict[int, int], ahead: bool = False
) -> list[int]:
    """Decodes positions [at, at + count) one per plan; `blocks` gives the block that begins at a position. With
    `ahead`, all plans are submitted before any result is read."""
    tickets = []
    for n in range(count):
        new = (blocks[at + n],) if at + n in blocks else ()
        plan = StepPlan(step + n, (chunk(request, at + n, at + n + 1, new, sampled_in=step + n - 1),))
        tickets.append(runner.submit(plan))
        if not ahead:
            tickets[-1].result()
    return [result.tokens[0][0] for result in (ticket.result() for ticket in tickets)]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("cuts", [(11,), (4, 8, 11), (1, 2, 3, 7, 11), (5, 11)])
def test_prefill_whole_or_in_chunks_then_decode(
    tiny: Tiny, runner: LocalRunner, cuts: tuple[int, ...], ahead: bool
) -> None:
    """Scattered blocks 40, 7, 21, then 20, 50, 8: the same tokens as transformers."""
    begin = 0
    table = [40, 7, 21]
    for step, end in enumerate(cuts):
        new = tuple(table[-(-begin // BLOCK) : -(-end // BLOCK)])
        starts = (start(1, PROMPT),) if step == 0 else ()
        last = end == len(PROMPT)
        result = runner.submit(StepPlan(step, (chunk(1, begin, end, new, samples=last),), starts)).result()
        assert result.error is None and (len(result.tokens[0]) == 1) == last
        begin = end
    rest = decode(runner, len(cuts), 1, 11, 11, {12: 20, 16: 50, 20: 8}, ahead)
    assert [result.tokens[0][0], *rest] == tiny.greedy(PROMPT, 12)


def test_requests_together_give_what_they_give_alone(tiny: Tiny, runner: LocalRunner) -> None:
    """A prefill, a chunk without a sample and a decode in one step."""
    prompts = {1: PROMPT, 2: PROMPT[::-1] * 2, 3: [7, 8, 9]}
    first = StepPlan(
        0,
        (chunk(1, 0, 11, (1, 2, 3)), chunk(2, 0, 6, (4, 5), samples=False)),
        (start(1, prompts[1]), start(2, prompts[2])),
    )
    second = StepPlan(
        1,
        (chunk(1, 11, 12, sampled_in=0), chunk(2, 6, 22, (6, 7, 8, 9)), chunk(3, 0, 3, (10,))),
        (start(3, prompts[3]),),
    )
    one, two = runner.submit(first), runner.submit(second)
    assert one.result().tokens == (tuple(tiny.greedy(prompts[1], 1)), ())
    assert two.result().tokens == (
        (tiny.greedy(prompts[1], 2)[1],),
        tuple(tiny.greedy(prompts[2], 1)),
        tuple(tiny.greedy(prompts[3], 1)),
    )


def test_a_cached_prefix_is_read_from_another_requests_blocks(tiny: Tiny, runner: LocalRunner) -> None:
    runner.submit(StepPlan(0, (chunk(1, 0, 11, (1, 2, 3)),), (start(1, PROMPT),))).result()
    other = [*PROMPT[:8], 1, 2, 3, 4]
    result = runner.submit(StepPlan(1, (chunk(2, 8, 12, (1, 2, 9)),), (start(2, other),))).result()
    assert list(result.tokens[0]) == tiny.greedy(other, 1)


def test_copies_and_redirects_come_before_the_chunks(tiny: Tiny, runner: LocalRunner) -> None:
    runner.submit(StepPlan(0, (chunk(1, 0, 11, (1, 2, 3)),), (start(1, PROMPT),))).result()
    moved = StepPlan(
        1,
        (chunk(1, 11, 12, sampled_in=0),),
        redirects=(Redirect(RequestId(1), 0, 1, BlockId(30)),),
        copies=(Copy(0, BlockId(2), BlockId(30)),),
    )
    assert list(runner.submit(moved).result().tokens[0]) == tiny.greedy(PROMPT, 2)[1:]


def test_a_resumed_request_goes_on_with_its_output(tiny: Tiny, runner: LocalRunner) -> None:
    expected = tiny.greedy(PROMPT, 6)
    runner.submit(StepPlan(0, (chunk(1, 0, 11, (1, 2, 3)),), (start(1, PROMPT),))).result()
    resumed = StepPlan(
        1,
        (chunk(1, 0, 14, (9, 8, 7, 6)),),
        (start(1, PROMPT + expected[:3], num_prompt=11),),
        released=(RequestId(1),),
    )
    assert list(runner.submit(resumed).result().tokens[0]) == [expected[3]]


def test_random_tokens_do_not_depend_on_preemption_or_batch(runner: LocalRunner) -> None:
    """The draw at an output position is the same in the first life, beside others, and after a resume."""
    sampling = SamplingParams(max_tokens=50, temperature=1.5, seed=77, frequency_penalty=0.3, logprobs=2)
    runner.submit(StepPlan(0, (chunk(1, 0, 11, (1, 2, 3, 4)),), (start(1, PROMPT, sampling),)))
    plans = [StepPlan(n, (chunk(1, 10 + n, 11 + n, sampled_in=n - 1),)) for n in range(1, 5)]
    first = [ticket.result().tokens[0][0] for ticket in [runner.submit(plan) for plan in plans]]
    again = [*PROMPT, 0]
    result = runner.submit(
        StepPlan(
            6,
            (chunk(2, 0, 11, (20, 21, 22, 23)), chunk(3, 0, 3, (30,))),
            (start(2, PROMPT, sampling), start(3, [5, 5, 5])),
        )
    ).result()
    again[-1] = result.tokens[0][0]
    assert result.logprobs is not None and len(result.logprobs[0]) == 1 and result.logprobs[1] == ()
    resumed = runner.submit(
        StepPlan(7, (chunk(2, 0, 12, (24, 25, 26, 27)),), (start(2, again, sampling, 11),), released=(RequestId(2),))
    )
    assert resumed.result().tokens[0][0] == first[0]
    follow = [StepPlan(8 + n, (chunk(2, 12 + n, 13 + n, sampled_in=7 + n),)) for n in range(3)]
    assert [runner.submit(plan).result().tokens[0][0] for plan in follow] == first[1:]


def test_an_empty_plan_and_transfers_without_a_tier(runner: LocalRunner) -> None:
    plan = StepPlan(
        0,
        loads=(Load(TransferId(1), 0, (b"k" * 16, b"l" * 16), (BlockId(4), BlockId(5))),),
        stores=(Store(TransferId(2), 0, (b"m" * 16,), (BlockId(6),)),),
    )
    assert runner.submit(plan).result() == StepResult(0)
    assert [(done.transfer_id, done.failed) for done in runner.transfers()] == [(1, (0, 1)), (2, (0,))]
    assert not runner.transfers()


class Faulty:
    """The model, but a step whose first token is `bad` raises, or its first row is NaN."""

    def __init__(self, model: LlamaModel, bad: int, nan: bool = False) -> None:
        self.spec = model.spec
        self._model, self._bad, self._nan = model, bad, nan

    def forward(self, batch: ForwardBatch, cache: KVCache) -> torch.Tensor:
        logits = self._model.forward(batch, cache)
        if int(batch.token_ids[0]) != self._bad:
            return logits
        if not self._nan:
            raise RuntimeError("the device fell over")
        logits[0] = float("nan")
        return logits


def test_a_failed_step_is_a_result_and_the_runner_lives_on(
    tiny: Tiny, model: LlamaModel, caplog: pytest.LogCaptureFixture
) -> None:
    """Step 1 was planned on the token that step 0 never gave; a newcomer in step 1 does not suffer from it. Nobody
    foresaw the error, so the log says where it came from."""
    faulty = Faulty(model, 3)
    runner = LocalRunner(faulty, new_cache(model.spec, 64, BLOCK, "float32"))  # type: ignore[arg-type]
    newcomer = [9, 8, 7]
    try:
        zero = runner.submit(StepPlan(0, (chunk(1, 0, 11, (1, 2, 3)),), (start(1, PROMPT),)))
        one = runner.submit(StepPlan(1, (chunk(1, 11, 12, sampled_in=0), chunk(2, 0, 3, (9,))), (start(2, newcomer),)))
        assert zero.result().error == "RuntimeError: the device fell over"
        assert "Traceback" in caplog.text and "in forward" in caplog.text
        assert one.result() == StepResult(1, ((), tuple(tiny.greedy(newcomer, 1))))
        faulty._bad = -1
        again = StepPlan(2, (chunk(1, 0, 11, (1, 2, 3)),), (start(1, PROMPT),), released=(RequestId(1),))
        assert list(runner.submit(again).result().tokens[0]) == tiny.greedy(PROMPT, 1)
    finally:
        runner.close()


@pytest.mark.parametrize("reason", ["logits", "parameters"])
def test_a_row_that_cannot_be_sampled_is_the_only_one_to_fail(
    tiny: Tiny, model: LlamaModel, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Two others in its step get their tokens; the plan behind it, already in flight, leaves the failed one out."""
    nan = reason == "logits"
    sampling = GREEDY if nan else SamplingParams(50, min_tokens=1, stop_token_ids=tuple(range(101)), temperature=0)
    faulty = Faulty(model, PROMPT[0] if nan else -1, nan)
    runner = LocalRunner(faulty, new_cache(model.spec, 64, BLOCK, "float32"))  # type: ignore[arg-type]
    others = {2: [9, 8, 7], 3: [40, 41, 42, 43]}
    try:
        first = StepPlan(
            0,
            (chunk(1, 0, 11, (1, 2, 3)), chunk(2, 0, 3, (4,)), chunk(3, 0, 4, (5,))),
            (start(1, PROMPT, sampling), start(2, others[2]), start(3, others[3])),
        )
        second = StepPlan(
            1, (chunk(1, 11, 12, sampled_in=0), chunk(2, 3, 4, sampled_in=0), chunk(3, 4, 5, (6,), sampled_in=0))
        )
        zero, one = runner.submit(first), runner.submit(second)
        wanted = {number: tiny.greedy(prompt, 2) for number, prompt in others.items()}
        assert zero.result() == StepResult(0, ((), (wanted[2][0],), (wanted[3][0],)), failed=(0,))
        assert one.result() == StepResult(1, ((), (wanted[2][1],), (wanted[3][1],)))
        assert "request 1 ends in step 0" in caplog.text
    finally:
        runner.close()


def test_submit_does_not_wait_and_done_is_announced(model: LlamaModel) -> None:
    gate, announced = threading.Event(), threading.Event()

    class Slow(Faulty):
        def forward(self, batch: ForwardBatch, cache: KVCache) -> torch.Tensor:
            assert gate.wait(10)
            return super().forward(batch, cache)

    slow = Slow(model, -1)
    cache = new_cache(model.spec, 64, BLOCK, "float32")
    runner = LocalRunner(slow, cache, on_done=announced.set)  # type: ignore[arg-type]
    ticket = runner.submit(StepPlan(0, (chunk(1, 0, 11, (1, 2, 3)),), (start(1, PROMPT),)))
    behind = runner.submit(StepPlan(1, (chunk(1, 11, 12, sampled_in=0),)))
    assert not ticket.done() and not announced.is_set()
    gate.set()
    assert announced.wait(10) and ticket.done()
    assert behind.result().error is None
    runner.close()
    runner.close()


def test_closing_fails_what_has_not_begun(model: LlamaModel) -> None:
    gate, began = threading.Event(), threading.Event()

    class Slow(Faulty):
        def forward(self, batch: ForwardBatch, cache: KVCache) -> torch.Tensor:
            began.set()
            assert gate.wait(10)
            return super().forward(batch, cache)

    cache = new_cache(model.spec, 64, BLOCK, "float32")
    runner = LocalRunner(Slow(model, -1), cache)  # type: ignore[arg-type]
    first = runner.submit(StepPlan(0, (chunk(1, 0, 11, (1, 2, 3)),), (start(1, PROMPT),)))
    second = runner.submit(StepPlan(1, (chunk(1, 11, 12, sampled_in=0),)))
    assert began.wait(10)
    runner.close(timeout_s=0.01)
    gate.set()
    assert first.result().error is None
    assert second.result().error == "the runner was closed"
