"""Figures as people read them: a few characters, however large they are."""

from __future__ import annotations

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_LONG = 1e12
"""From here on a number is shown as 1.2e+12."""


def count_text(value: float) -> str:
    """Whole numbers with thousands separated; fractions only where they matter."""
    if value and abs(value) < 10 and value != int(value):
        return f"{value:.2g}" if abs(value) < 1 else f"{value:.1f}"
    return f"{value:.1e}" if abs(value) >= _LONG else f"{value:,.0f}"


def median_text(count: float) -> str:
    """Of whole numbers: the half between two of them stays."""
    return f"{count:,.1f}" if abs(count) < _LONG and count % 1 == 0.5 else count_text(count)


def tokens_text(tokens: float) -> str:
    if abs(tokens) >= _LONG:
        return count_text(tokens)
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "K")):
        if abs(tokens) >= limit:
            scaled = tokens / limit * (10 if unit == "K" else 1)
            return f"{scaled:.1f}{unit}" if scaled < 100 else f"{scaled:,.0f}{unit}"
    return count_text(tokens)


def bytes_text(size: float) -> str:
    power = 0
    while abs(size) >= 1024 and power < len(_BYTE_UNITS) - 1:
        size /= 1024
        power += 1
    unit = _BYTE_UNITS[power]
    if abs(size) >= 1e6:
        return f"{size:.1e} {unit}"
    return f"{size:.3g} {unit}" if size < 1000 else f"{size:,.0f} {unit}"


def time_text(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    days = seconds / 86400
    return f"{days:.1e} d" if days >= 1e5 else f"{days:.1f} d"


def share_text(share: float) -> str:
    return f"{100 * share:.1f}%"
