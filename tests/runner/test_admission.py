"""The engine's own door: what it refuses, and that what it lets in can be sampled whatever the model says."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

pytest.importorskip("torch")
import torch

from samovar.base.ids import RequestId
from samovar.base.keys import pack_tokens
from samovar.core.request import Request
from samovar.core.sampling import SamplingParams
from samovar.runner.admission import refusal
from samovar.runner.filters import PenaltyCounts
from samovar.runner.sampler import SamplingRow, sample

pytestmark = pytest.mark.torch

VOCAB = 23


def request(prompt: bytes = pack_tokens([1]), **values: object) -> Request:
    sampling = SamplingParams(**{"max_tokens": 10, **values})  # type: ignore[arg-type]
    return Request(RequestId(1), prompt, sampling, b"root")


@given(st.binary(max_size=40))
def test_prompts_by_their_ids(data: bytes) -> None:
    """Brute force: whole little-endian int32s, at least one, each inside the vocabulary."""
    whole = len(data) % 4 == 0 and len(data) > 0
    ids = [int.from_bytes(data[at : at + 4], "little", signed=True) for at in range(0, len(data), 4)] if whole else []
    error = refusal(request(data), VOCAB)
    assert (error is None) is (whole and all(0 <= token < VOCAB for token in ids))
    assert error is None or error.param == "prompt"


@given(st.lists(st.integers(-2, VOCAB + 1), min_size=1, max_size=30))
def test_prompts_near_the_vocabulary_s_ends(ids: list[int]) -> None:
    assert (refusal(request(pack_tokens(ids)), VOCAB) is None) is all(0 <= token < VOCAB for token in ids)


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"repetition_penalty": 1e-320}, "repetition_penalty"),
        ({"repetition_penalty": 0.0099}, "repetition_penalty"),
        ({"presence_penalty": math.inf}, "presence_penalty"),
        ({"frequency_penalty": math.nan}, "frequency_penalty"),
        ({"stop_token_ids": (VOCAB,)}, "stop_token_ids"),
        ({"stop_token_ids": tuple(range(VOCAB)), "min_tokens": 1}, "stop_token_ids"),
        ({"stop_token_ids": (*range(VOCAB), 3), "min_tokens": 1}, "stop_token_ids"),
        ({"logit_bias": ((VOCAB, 1.0),)}, "logit_bias"),
        ({"logit_bias": ((1, math.inf),)}, "logit_bias"),
    ],
)
def test_parameters_out_of_range(values: dict[str, object], param: str) -> None:
    error = refusal(request(**values), VOCAB)
    assert error is not None and error.param == param and error.message.startswith(f"{param}: ")


@pytest.mark.parametrize(
    "values",
    [
        {"repetition_penalty": 0.01},
        {"stop_token_ids": tuple(range(VOCAB))},
        {"stop_token_ids": tuple(range(VOCAB - 1)), "min_tokens": 9},
        {"stop_token_ids": (4,) * VOCAB, "min_tokens": 9},
        {"temperature": 0.0, "top_p": 1.0, "min_p": 1.0},
    ],
)
def test_parameters_at_their_limits(values: dict[str, object]) -> None:
    assert refusal(request(**values), VOCAB) is None


numbers = st.one_of(st.floats(allow_nan=False), st.floats(0, 2), st.sampled_from([1e-320, 1e-5, 0.01, 1.0]))
parameters = st.fixed_dictionaries(
    {
        "temperature": numbers,
        "top_p": numbers,
        "top_k": st.integers(-1, VOCAB + 3),
        "min_p": numbers,
        "repetition_penalty": numbers,
        "min_tokens": st.integers(0, 3),
        "stop_token_ids": st.lists(st.integers(0, VOCAB - 1), max_size=30).map(tuple),
        "logit_bias": st.lists(st.tuples(st.integers(0, VOCAB - 1), st.floats(-100, 100)), max_size=5).map(tuple),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
    }
)


@settings(max_examples=200, deadline=None)
@given(values=parameters, scale=st.sampled_from([0.0, 1.0, 1e30]), seed=st.integers(0, 99), position=st.integers(0, 3))
def test_what_is_let_in_can_be_sampled(values: dict[str, object], scale: float, seed: int, position: int) -> None:
    """With the penalties and biases that a client may give; a warning of NumPy's would fail the test, too."""
    asked = request(**values)
    if refusal(asked, VOCAB) is not None:
        return
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(seed)) * scale
    tokens = np.random.default_rng(seed).integers(0, VOCAB, 20).astype(np.int32)
    counts = PenaltyCounts(tokens[:10], tokens[10:], VOCAB)
    result = sample(logits, [SamplingRow(RequestId(1), asked.sampling, position, counts)])
    assert not result.faults and result.tokens[0] is not None
    if position < asked.sampling.min_tokens:
        assert result.tokens[0] not in asked.sampling.stop_token_ids
