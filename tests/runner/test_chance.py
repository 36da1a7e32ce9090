"""The random numbers are a pure function, spread evenly, and the same on every machine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from samovar.runner.chance import uniform


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**40))
def test_in_the_unit_interval_and_repeatable(seed: int, position: int) -> None:
    value = uniform(seed, position)
    assert 0.0 <= value < 1.0
    assert value == uniform(seed, position)


def test_matches_the_published_generator() -> None:
    """SplitMix64 seeded with 1234567 starts with these five numbers (the reference C code's output)."""
    from samovar.runner import chance

    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    state, gamma = 1234567, 0x9E3779B97F4A7C15
    assert [chance._finalise((state + (n + 1) * gamma) & (2**64 - 1)) for n in range(5)] == expected


def test_spread_over_positions_and_over_seeds() -> None:
    """Mean and variance of 20,000 numbers, and the share in each of ten bins, within five standard deviations."""
    for values in ([uniform(7, p) for p in range(20_000)], [uniform(s, 3) for s in range(20_000)]):
        mean = sum(values) / len(values)
        assert abs(mean - 0.5) < 5 * (1 / 12 / 20_000) ** 0.5
        bins = [0] * 10
        for value in values:
            bins[int(value * 10)] += 1
        assert all(abs(n - 2000) < 5 * (20_000 * 0.1 * 0.9) ** 0.5 for n in bins)


def test_neighbouring_positions_are_unrelated() -> None:
    pairs = [(uniform(1, p) - 0.5, uniform(1, p + 1) - 0.5) for p in range(20_000)]
    correlation = sum(a * b for a, b in pairs) / len(pairs) * 12
    assert abs(correlation) < 5 / 20_000**0.5
