"""Why a configuration is better or worse than another at one load: which parts of a turn's time it makes shorter or
longer.

A turn's parts are the causes that bound it (`report_limits`), in seconds instead of shares. Two configurations measure
nearly the same turns, as lanes begin at the same points; what differs is how many of them the time is enough for.
"""

from __future__ import annotations

from collections.abc import Sequence

from samovar.sim.plan_trial import Trial

LEAST = 0.02
"""Of the old turn; parts that change by less are not named."""
MOST = 3
"""Parts named."""


def turn_change(new: Trial, old: Trial) -> str:
    """`40.1 → 12.3: KV capacity 25.1 → 1.0, collectives 2.0 → 4.4`, in seconds of a mean turn."""
    before_s, after_s = old.explained.turn.total_s, new.explained.turn.total_s
    if not before_s or not after_s:
        return f"no request ended well {'before it' if after_s else 'with it'}"
    old_s, new_s = _seconds(old), _seconds(new)
    changes = {cause: new_s.get(cause, 0.0) - old_s.get(cause, 0.0) for cause in {**old_s, **new_s}}
    largest = sorted(changes, key=lambda cause: -abs(changes[cause]))[:MOST]
    told = [
        f"{cause} {_text(old_s.get(cause, 0.0))} → {_text(new_s.get(cause, 0.0))}"
        for cause in largest
        if abs(changes[cause]) >= LEAST * before_s
    ]
    return f"{_text(before_s)} → {_text(after_s)}: {', '.join(told) or f'no part changes by {LEAST:.0%} of a turn'}"


def aimed_at(aims: Sequence[str], baseline: Trial) -> str:
    """What there was to win: `KV capacity, 63%` of the baseline's turn; "" for what aims at nothing in particular."""
    return ", ".join(f"{cause} {baseline.explained.causes.get(cause, 0.0):.0%}" for cause in aims)


def _seconds(trial: Trial) -> dict[str, float]:
    return {cause: share * trial.explained.turn.total_s for cause, share in trial.explained.causes.items()}


def _text(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds >= 9.95 else f"{seconds:.2f}"
