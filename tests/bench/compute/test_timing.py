"""Alternating, with a clock that stands still except in what is timed."""

from __future__ import annotations

from samovar.bench.compute.timing import MOST_CALLS, alternate, measure


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[str] = []

    def __call__(self) -> float:
        return self.now

    def spend(self, name: str, *seconds: float) -> object:
        """A run that takes these times in turn, the last one from then on."""
        left = list(seconds)

        def run() -> None:
            self.order.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run


def test_alternates_after_a_warm_up() -> None:
    clock = Clock()
    # the first two calls warm up and tell how long one takes
    first, second = clock.spend("a", 9.0, 1.0, 1.0, 4.0, 2.0), clock.spend("b", 5.0)
    a, b = alternate([first, second], 3, clock)  # type: ignore[list-item]
    assert clock.order == ["a", "a", "b", "b"] + ["a", "b"] * 3
    assert (a.median_s, a.best_s, a.repeats) == (2.0, 1.0, 3)
    assert (b.median_s, b.best_s) == (5.0, 5.0)


def test_short_runs_are_called_often() -> None:
    clock = Clock()
    timing = measure(clock.spend("a", 1e-5), 2, clock)  # type: ignore[arg-type]
    assert len(clock.order) == 2 + 2 * 100
    assert abs(timing.median_s - 1e-5) < 1e-12
    idle = Clock()
    measure(idle.spend("a", 0.0), 1, idle)  # type: ignore[arg-type]
    assert len(idle.order) == 2 + MOST_CALLS
