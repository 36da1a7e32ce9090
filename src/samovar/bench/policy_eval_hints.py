"""What clients say of their sessions in a replay: the truth, a coarse truth, or something else.

A client speaks as its request begins, and knows then when its next one will begin.
"""

from __future__ import annotations

from collections.abc import Callable
import random

from samovar.base.errors import ConfigError
from samovar.policy.hints import Hint

Giver = Callable[[float | None], tuple[Hint, ...]]
"""From the seconds until the stream's next request begins (None: there is none) to the hints given."""

NOISE = 0.25
SOON_S, LATER_S = 30.0, 300.0
_RELEASE = Hint("release")
_SOON = Hint("resume_in", SOON_S, bound="at_most")
_MEDIUM = Hint("resume_in", LATER_S, bound="at_most")
_LATER = Hint("resume_in", LATER_S, bound="at_least")
_CLASSES = (_SOON, _MEDIUM, _LATER, _RELEASE)


def _class(gap_s: float | None) -> Hint:
    if gap_s is None:
        return _RELEASE
    if gap_s <= SOON_S:
        return _SOON
    return _MEDIUM if gap_s <= LATER_S else _LATER


def _none(gap_s: float | None) -> tuple[Hint, ...]:
    return ()


def _perfect(gap_s: float | None) -> tuple[Hint, ...]:
    if gap_s is None:
        return (_RELEASE,)
    return (Hint("resume_in", gap_s),) if gap_s > 0.0 else ()


def _coarse(gap_s: float | None) -> tuple[Hint, ...]:
    return (_class(gap_s),)


def _noisy(draw: random.Random) -> Giver:
    def give(gap_s: float | None) -> tuple[Hint, ...]:
        true = _class(gap_s)
        wrong = draw.random() < NOISE
        return (draw.choice([hint for hint in _CLASSES if hint is not true]) if wrong else true,)

    return give


def _adversarial(gap_s: float | None) -> tuple[Hint, ...]:
    """Whoever comes back soon says that it is over, whoever never does that it comes at once."""
    opposite = {_SOON: _RELEASE, _MEDIUM: _LATER, _LATER: _SOON, _RELEASE: _SOON}
    return (opposite[_class(gap_s)],)


def _all_release(gap_s: float | None) -> tuple[Hint, ...]:
    return (_RELEASE,)


def _all_retain(gap_s: float | None) -> tuple[Hint, ...]:
    return (Hint("retain", 3600.0),)


_GIVERS: dict[str, Callable[[int], Giver]] = {
    "none": lambda seed: _none,
    "perfect": lambda seed: _perfect,
    "class": lambda seed: _coarse,
    "noisy": lambda seed: _noisy(random.Random(seed)),
    "adversarial": lambda seed: _adversarial,
    "all-release": lambda seed: _all_release,
    "all-retain": lambda seed: _all_retain,
}
HINT_MODES = tuple(_GIVERS)


def hint_giver(mode: str, seed: int) -> Giver:
    """Raises ConfigError for an unknown mode."""
    if mode not in _GIVERS:
        raise ConfigError(f"--hints has {mode!r}; there are {', '.join(HINT_MODES)}")
    return _GIVERS[mode](seed)
