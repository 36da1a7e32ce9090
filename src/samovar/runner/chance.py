"""Random numbers as a pure function of (seed, position): no generator state to keep, restore or share.

The generator is SplitMix64 (Steele, Lea, Flood 2014) read at an arbitrary place of its sequence: output n is the
finaliser of `state + n * gamma`. The state is the finaliser of the seed, so neighbouring seeds give unrelated streams.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def _finalise(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def uniform(seed: int, position: int) -> float:
    """A double in [0, 1) with 53 random bits; the same on every machine."""
    state = _finalise((seed + _GAMMA) & _MASK)
    return (_finalise((state + (position + 1) * _GAMMA) & _MASK) >> 11) * 2.0**-53
