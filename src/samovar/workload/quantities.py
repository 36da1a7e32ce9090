"""Figures as people read them."""

from __future__ import annotations

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def count_text(value: float) -> str:
    """Whole numbers with thousands separated; fractions only where they matter."""
    if value and abs(value) < 10 and value != int(value):
        return f"{value:.2g}" if abs(value) < 1 else f"{value:.1f}"
    return f"{value:,.0f}"


def tokens_text(tokens: float) -> str:
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
    return f"{size:.3g} {_BYTE_UNITS[power]}" if size < 1000 else f"{size:,.0f} {_BYTE_UNITS[power]}"


def time_text(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86400:.1f} d"


def share_text(share: float) -> str:
    return f"{100 * share:.1f}%"
