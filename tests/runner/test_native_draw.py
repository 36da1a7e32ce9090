"""Sampling by the native kernels against NumPy's filters, token for token over random logits, rules and numbers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

pytest.importorskip("torch")
from tests.kernels.packed import native, native_levels, needs_native
import torch

from samovar.core.sampling import SamplingParams
from samovar.runner.filters import draw, filtered_weights
from samovar.runner.native_draw import drawing
from samovar.runner.sampler import DrawMany, SamplingRow, sample

pytestmark = [pytest.mark.torch, needs_native]


@pytest.fixture(scope="module", params=native_levels())
def draw_many(request: pytest.FixtureRequest) -> DrawMany:
    ops = native(request.param)
    assert ops.draw is not None
    return drawing(ops.draw)


RULES = st.builds(
    SamplingParams,
    max_tokens=st.just(1),
    temperature=st.floats(0.05, 3.0),
    min_p=st.sampled_from([0.0, 0.01, 0.2]),
    top_k=st.sampled_from([0, 1, 2, 17, 100_000]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.01]),
    seed=st.just(0),
)


@settings(max_examples=80, deadline=None)
@given(rules=st.lists(RULES, min_size=1, max_size=4), size=st.integers(1, 5000), seed=st.integers(0, 2**32 - 1))
def test_tokens_of_the_reference(draw_many: DrawMany, rules: list[SamplingParams], size: int, seed: int) -> None:
    """Equal but where the number falls within rounding (1e-5 of the mass) of a border between tokens, or a filter's
    border within rounding of a weight: then the token must be one that the reference gives for a number, or a filter,
    a little beside."""
    rng = np.random.default_rng(seed)
    logits = (rng.standard_normal((len(rules), size)) * rng.choice([0.1, 3.0, 10.0])).astype(np.float32)
    numbers = rng.random(len(rules)).tolist()
    got = draw_many(torch.from_numpy(logits), list(range(len(rules))), rules, numbers)
    for row, params, number, token in zip(logits, rules, numbers, got, strict=True):
        weights = filtered_weights(row.astype(np.float64), params)
        near = {draw(weights, min(max(number + shift, 0.0), 1 - 1e-12)) for shift in (-1e-5, 0.0, 1e-5)}
        assert token in near or at_a_border(row, params, token), (token, near)


def at_a_border(row: np.ndarray, params: SamplingParams, token: int) -> bool:
    """A filter that keeps a hair more or less moves every later token of the draw: such cases need a weight within
    rounding of the border."""
    values = row.astype(np.float64)
    weights = np.exp((values - values.max()) / params.temperature)
    kept = filtered_weights(values, params)
    border = kept[kept > 0].min()
    beside = np.sort(np.abs(weights / border - 1.0))
    return weights[token] >= border * (1 - 1e-5) and beside.size > 1 and bool(beside[1] < 1e-5)


def test_frequencies(draw_many: DrawMany) -> None:
    """Two hundred thousand draws over eight tokens: within five standard deviations of their probabilities."""
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0, 0.5, -3.0, 1.5, 0.2]])
    params = SamplingParams(max_tokens=1, temperature=0.8, seed=0)
    numbers = np.random.default_rng(3).random(200_000)
    count = 1000
    tokens: list[int] = []
    for low in range(0, len(numbers), count):
        tokens += draw_many(logits, [0] * count, [params] * count, numbers[low : low + count].tolist())
    expected = torch.softmax(logits[0] / 0.8, -1).numpy()
    seen = np.bincount(tokens, minlength=8) / len(tokens)
    assert np.all(np.abs(seen - expected) < 5 * np.sqrt(expected * (1 - expected) / len(tokens)))


def test_ties_at_the_border_are_kept(draw_many: DrawMany) -> None:
    logits = torch.tensor([[1.0, 2.0, 1.0, 1.0, 0.0]])
    for params in (
        SamplingParams(max_tokens=1, temperature=1.0, top_k=2, seed=0),
        SamplingParams(max_tokens=1, temperature=1.0, top_p=0.6, seed=0),
    ):
        tokens = {draw_many(logits, [0], [params], [u])[0] for u in np.linspace(0, 0.999, 200).tolist()}
        assert tokens == {0, 1, 2, 3}


def test_masked_logits_are_never_drawn(draw_many: DrawMany) -> None:
    logits = torch.full((1, 3000), -torch.inf)
    logits[0, 1500] = logits[0, 2999] = -5.0
    params = SamplingParams(max_tokens=1, temperature=1.0, seed=0)
    tokens = [draw_many(logits, [0], [params], [u])[0] for u in (0.0, 0.49, 0.51, 1 - 1e-16)]
    assert tokens == [1500, 1500, 2999, 2999]


def test_a_row_alone_and_among_others(draw_many: DrawMany) -> None:
    logits = torch.randn(16, 4000, generator=torch.Generator().manual_seed(1))
    params = SamplingParams(max_tokens=1, temperature=0.9, top_p=0.9, seed=5)
    rows = [SamplingRow(at, params, at) for at in range(16)]
    together = sample(logits, rows, draw_many=draw_many).tokens
    alone = [sample(logits[at : at + 1], rows[at : at + 1], draw_many=draw_many).tokens[0] for at in range(16)]
    assert together == alone
