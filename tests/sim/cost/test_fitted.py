"""Six coefficients from measured steps: found again under noise, never negative, refused where there are too few."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.base.errors import ConfigError
from samovar.sim.cost.fitted import FittedModel, StepCoefficients, features, fit_coefficients
from samovar.sim.cost.shape import Chunk, StepShape

TRUE = StepCoefficients(5e-3, 1e-4, 1e-7, 3e-4, 2e-8, 2e-2)


def made_up(num: int, noise: float, coefficients: StepCoefficients = TRUE) -> list[tuple[StepShape, float]]:
    chance = random.Random(1)
    model = FittedModel(coefficients)
    rows = []
    for _ in range(num):
        decoding = chance.randint(0, 20)
        chunks = tuple(Chunk(chance.randint(1, 500), chance.randint(0, 5000)) for _ in range(chance.randint(0, 2)))
        shape = StepShape(decoding, decoding * chance.randint(10, 4000), 1, chunks)
        rows.append((shape, model.step_s([shape]).total_s * chance.gauss(1, noise)))
    return rows


def test_by_hand() -> None:
    shape = StepShape(4, 10_000, 2, (Chunk(100, 1000), Chunk(10)))
    assert features(shape) == (1, 8, 10_000, 110, 100 * 1050 + 10 * 5, 1)
    found = FittedModel(TRUE).step_s([shape])
    assert found.total_s == pytest.approx(5e-3 + 8e-4 + 1e-3 + 0.033 + 2e-8 * 105_050 + 2e-2)
    assert found.measured_s == found.total_s


def test_found_again() -> None:
    exact = fit_coefficients(made_up(40, 0.0))
    for name in TRUE.__struct_fields__:
        assert getattr(exact, name) == pytest.approx(getattr(TRUE, name), rel=1e-6)
    noisy = fit_coefficients(made_up(2000, 0.05))
    for name in TRUE.__struct_fields__:
        assert getattr(noisy, name) == pytest.approx(getattr(TRUE, name), rel=0.1)


def test_steps_that_scatter_take_as_long_as_they_did() -> None:
    """Now and then one takes twice as long: the fit says neither what the quick ones take nor less."""
    chance = random.Random(2)
    rows = [(shape, seconds * chance.choice((0.8, 1.0, 2.0))) for shape, seconds in made_up(2000, 0.0)]
    model = FittedModel(fit_coefficients(rows))
    said = sum(model.step_s([shape]).total_s for shape, _ in rows)
    assert said == pytest.approx(sum(seconds for _, seconds in rows), rel=0.02)


@given(st.lists(st.floats(1e-4, 1.0), min_size=8, max_size=8), st.integers(0, 2**31))
def test_no_coefficient_is_negative(times: list[float], seed: int) -> None:
    chance = random.Random(seed)
    shapes = [
        StepShape(
            chance.randint(0, 5), chance.randint(0, 9999), 1, (Chunk(chance.randint(1, 99)),) * chance.randint(0, 1)
        )
        for _ in times
    ]
    found = fit_coefficients(list(zip(shapes, times, strict=True)))
    assert min(getattr(found, name) for name in found.__struct_fields__) >= 0


def test_what_would_be_negative_is_left_out() -> None:
    """Steps that get shorter with every row are told by the others alone."""
    found = fit_coefficients([(StepShape(n, 0), 1.0 - 0.01 * n) for n in range(10)])
    assert found.decode_row_s == 0 and found.base_s == pytest.approx(0.95, rel=0.02)


def test_steps_without_prompts_say_nothing_of_them() -> None:
    found = fit_coefficients([row for row in made_up(200, 0.01) if not row[0].chunks])
    assert found.prefill_token_s == found.prefill_pair_s == found.prefill_step_s == 0
    assert found.base_s == pytest.approx(TRUE.base_s, rel=0.05)


def test_refused() -> None:
    with pytest.raises(ConfigError, match="5 measured steps; fitting six coefficients takes at least 6"):
        fit_coefficients(made_up(5, 0.0))
    with pytest.raises(ConfigError, match="a measured step took no time"):
        fit_coefficients([*made_up(6, 0.0), (StepShape(), 0.0)])
    with pytest.raises(ValueError, match="2 shapes for 1 rank"):
        FittedModel(TRUE).step_s([StepShape(), StepShape()])
