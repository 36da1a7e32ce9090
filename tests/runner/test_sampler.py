"""The sampler against transformers' logits processors and a brute-force inverse CDF."""

from __future__ import annotations

import math

from hypothesis import example, given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from samovar.base.ids import RequestId
from samovar.core.sampling import SamplingParams
from samovar.runner.chance import uniform
from samovar.runner.filters import PenaltyCounts, adjust, draw, filtered_weights
from samovar.runner.sampler import SamplingRow, sample

pytestmark = pytest.mark.torch

VOCAB = 97


def params(**values: object) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 100, **values})  # type: ignore[arg-type]


def some_logits(seed: int, rows: int = 1) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def row(request: int = 0, position: int = 0, counts: PenaltyCounts | None = None, **values: object) -> SamplingRow:
    return SamplingRow(RequestId(request), params(**values), position, counts)


def oracle_weights(logits: torch.Tensor, p: SamplingParams) -> np.ndarray:
    """Temperature, min_p, top_k, top_p by transformers, in float64."""
    scores = logits.double()
    warpers = [TemperatureLogitsWarper(p.temperature)]
    if p.min_p:
        warpers.append(MinPLogitsWarper(p.min_p))
    if p.top_k:
        warpers.append(TopKLogitsWarper(p.top_k))
    if p.top_p < 1:
        warpers.append(TopPLogitsWarper(p.top_p))
    for warper in warpers:
        scores = warper(None, scores)
    return torch.softmax(scores, -1)[0].numpy()


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.floats(0.05, 5.0),
    top_k=st.integers(0, VOCAB + 5),
    top_p=st.floats(0.01, 1.0),
    min_p=st.floats(0.0, 0.9),
)
def test_filters_match_transformers(seed: int, temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    p = params(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    logits = some_logits(seed)
    weights = filtered_weights(logits[0].numpy().astype(np.float64), p)
    np.testing.assert_allclose(weights / weights.sum(), oracle_weights(logits, p), atol=1e-12)


@pytest.mark.parametrize("only", [{"top_k": 5}, {"top_p": 0.6}, {"min_p": 0.2}, {}])
def test_each_filter_alone_keeps_what_its_definition_says(only: dict[str, float]) -> None:
    logits = some_logits(3)[0].numpy().astype(np.float64)
    weights = filtered_weights(logits.copy(), params(**only))
    probabilities = np.exp(logits - logits.max())
    probabilities /= probabilities.sum()
    order = np.argsort(-probabilities)
    if "top_k" in only:
        kept = set(order[:5].tolist())
    elif "top_p" in only:
        size = next(n for n in range(1, VOCAB + 1) if probabilities[order[:n]].sum() >= 0.6)
        kept = set(order[:size].tolist())
    elif "min_p" in only:
        kept = set(np.flatnonzero(probabilities >= 0.2 * probabilities.max()).tolist())
    else:
        kept = set(range(VOCAB))
    assert set(np.flatnonzero(weights).tolist()) == kept
    assert only == {} or len(kept) < VOCAB


def test_min_p_comes_before_top_p() -> None:
    """Probabilities .4 .3 .2 .1: min_p 0.6 leaves .4 .3, of which top_p 0.55 keeps only the first; in the other order
    top_p would keep two and min_p would let both pass."""
    weights = filtered_weights(np.log([0.4, 0.3, 0.2, 0.1]), params(min_p=0.6, top_p=0.55))
    assert np.flatnonzero(weights).tolist() == [0]


def test_ties_at_a_limit_are_kept() -> None:
    tied = np.array([1.0, 2.0, 1.0, 1.0, 0.0])
    assert np.flatnonzero(filtered_weights(tied.copy(), params(top_k=2))).tolist() == [0, 1, 2, 3]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=30), st.floats(0.5, 2.0))
def test_repetition_penalty_matches_transformers(seed: int, context: list[int], penalty: float) -> None:
    logits = some_logits(seed)
    expected = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([context]), logits.double().clone())
    cut = len(context) // 2
    counts = PenaltyCounts(np.array(context[:cut], np.int32), np.array(context[cut:], np.int32), VOCAB)
    values = logits[0].numpy().astype(np.float64)
    adjust(values, params(repetition_penalty=penalty), 5, counts)
    np.testing.assert_allclose(values, expected[0].numpy(), atol=1e-12)


def test_presence_and_frequency_count_the_output_only() -> None:
    counts = PenaltyCounts(np.array([1, 2], np.int32), np.array([2, 3, 3], np.int32), VOCAB)
    values = np.zeros(VOCAB)
    adjust(values, params(presence_penalty=0.5, frequency_penalty=0.25), 3, counts)
    assert values[1] == 0 and values[2] == -0.75 and values[3] == -1.0


def test_counts_follow_what_is_added_and_removed() -> None:
    counts = PenaltyCounts(np.array([1], np.int32), np.array([], np.int32), VOCAB)
    for token in (4, 4, 5):
        counts.add(token)
    counts.remove([4])
    assert counts.output[4] == 1 and counts.output[5] == 1 and counts.output.sum() == 2


def test_penalties_see_biased_logits() -> None:
    """vLLM's order: with the bias first, the repetition penalty divides the biased logit."""
    counts = PenaltyCounts(np.array([0], np.int32), np.array([], np.int32), VOCAB)
    values = np.zeros(VOCAB)
    adjust(values, params(logit_bias=((0, 4.0),), repetition_penalty=2.0), 0, counts)
    assert values[0] == 2.0


def test_min_tokens_masks_stop_tokens_until_then() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 9], logits[0, 4] = 5.0, 1.0
    for position, expected in ((0, 4), (1, 4), (2, 9)):
        asked = row(position=position, temperature=0, min_tokens=2, stop_token_ids=(9,))
        assert sample(logits, [asked]).tokens == [expected]


def test_greedy_takes_the_lowest_id_on_ties_on_both_paths() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, [11, 60]] = 2.0
    plain, adjusted = row(temperature=0), row(temperature=0, logit_bias=((3, 0.5),))
    assert sample(logits, [plain]).tokens == sample(logits, [adjusted]).tokens == [11]


def test_a_tiny_temperature_is_still_finite() -> None:
    logits = some_logits(5) * 1000
    assert sample(logits, [row(temperature=2e-5, seed=1)]).tokens == [int(logits.argmax())]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20).filter(any), st.floats(0, 1, exclude_max=True))
@example([0.0, 1.0], 0.0)
@example([0.5, 0.0, 0.5], 0.5)
@example([1.0, 0.1, 0.2, 0.0], 1 - 2.0**-53)
def test_draw_inverts_the_cumulative_weights(weights: list[float], u: float) -> None:
    """Brute force: walk in token order until the running weight passes u of the total; never a token without weight."""
    total = math.fsum(weights)
    at = draw(np.array(weights), u)
    assert weights[at] > 0
    below, through = math.fsum(weights[:at]), math.fsum(weights[: at + 1])
    assert below <= u * total * (1 + 1e-12) + 1e-300 and u * total <= through * (1 + 1e-12) + 1e-300


def test_draws_follow_the_distribution() -> None:
    """40,000 positions of one seed against softmax: every frequency within five standard deviations."""
    logits = some_logits(8)
    probabilities = torch.softmax(logits.double(), -1)[0].numpy()
    weights = filtered_weights(logits[0].numpy().astype(np.float64), params())
    n = 40_000
    found = np.bincount([draw(weights, uniform(3, p)) for p in range(n)], minlength=VOCAB)
    assert (np.abs(found - n * probabilities) <= 5 * np.sqrt(n * probabilities * (1 - probabilities)) + 1).all()


mixtures = st.lists(
    st.fixed_dictionaries(
        {
            "temperature": st.sampled_from([0.0, 0.7, 1.0]),
            "top_k": st.sampled_from([0, 7]),
            "top_p": st.sampled_from([1.0, 0.8]),
            "seed": st.integers(0, 2**63 - 1),
            "logprobs": st.sampled_from([-1, 0, 3]),
        }
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=50, deadline=None)
@given(mixture=mixtures, seed=st.integers(0, 1000), order=st.randoms())
def test_a_rows_token_ignores_the_rest_of_the_batch(mixture: list[dict[str, object]], seed: int, order: object) -> None:
    logits = some_logits(seed, len(mixture))
    rows = [row(i, position=i, **values) for i, values in enumerate(mixture)]
    together = sample(logits, rows)
    shuffled = list(range(len(rows)))
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    mixed = sample(logits[shuffled], [rows[i] for i in shuffled])
    for place, i in enumerate(shuffled):
        alone = sample(logits[i : i + 1], [rows[i]])
        assert alone.tokens[0] == together.tokens[i] == mixed.tokens[place]
        assert alone.logprobs[0] == together.logprobs[i] == mixed.logprobs[place]


def test_logprobs_are_of_the_raw_distribution() -> None:
    logits = some_logits(2)
    expected = torch.log_softmax(logits, -1)[0]
    asked = row(temperature=0.3, top_k=3, logprobs=4, seed=5, logit_bias=((int(logits.argmin()), 100.0),))
    result = sample(logits, [asked])
    report = result.logprobs[0]
    assert report is not None and result.tokens == [int(logits.argmin())]
    assert report.logprob == pytest.approx(float(expected[result.tokens[0]]))
    best = expected.topk(4)
    assert [token for token, _ in report.top] == best.indices.tolist()
    assert [value for _, value in report.top] == pytest.approx(best.values.tolist())
    assert sample(logits, [row(temperature=0)]).logprobs == [None]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_their_rows_fault(bad: float) -> None:
    logits = some_logits(1, 3)
    expected = logits.argmax(-1).tolist()
    logits[1, 17] = bad
    result = sample(logits, [row(i, temperature=0, logprobs=1) for i in (7, 8, 9)])
    assert result.tokens == [expected[0], None, expected[2]]
    assert list(result.faults) == [1] and "not finite" in result.faults[1]
    assert [report is None for report in result.logprobs] == [False, True, False]


HOPELESS: list[dict[str, object]] = [
    {"min_tokens": 10, "stop_token_ids": tuple(range(VOCAB))},
    {"logit_bias": ((3, 1e308), (3, 1e308))},
    {"repetition_penalty": 1e-320},
    {"repetition_penalty": 1e-320, "temperature": 0.7},
    {"presence_penalty": -1e308, "frequency_penalty": -1e308},
]


@settings(max_examples=50, deadline=None)
@given(mixture=mixtures, hopeless=st.lists(st.sampled_from(HOPELESS), min_size=1, max_size=4), seed=st.integers(0, 999))
def test_no_row_can_take_another_with_it(
    mixture: list[dict[str, object]], hopeless: list[dict[str, object]], seed: int
) -> None:
    """Rows that cannot be sampled, before and between the others, change nothing for them."""
    logits = some_logits(seed, len(mixture) + len(hopeless))
    counts = PenaltyCounts(np.arange(VOCAB, dtype=np.int32), np.arange(VOCAB, dtype=np.int32), VOCAB)
    bad = [row(100 + i, counts=counts, **{"temperature": 0.0, **values}) for i, values in enumerate(hopeless)]
    good = [row(i, position=i, **values) for i, values in enumerate(mixture)]
    rows, at = list(bad), []
    for i, one in enumerate(good):
        at.append(1 + i if i < len(bad) else len(rows))
        rows.insert(at[-1], one)
    at = [rows.index(one) for one in good]
    together = sample(logits, rows)
    alone = sample(logits[at], good)
    assert [together.tokens[i] for i in at] == alone.tokens
    assert [together.logprobs[i] for i in at] == alone.logprobs
    assert sorted(together.faults) == [i for i in range(len(rows)) if i not in at] and not alone.faults
