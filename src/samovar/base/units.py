"""Sizes as people write them."""

from __future__ import annotations

from samovar.base.errors import ConfigError

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
    "ti": 1 << 40,
}


def parse_bytes(text: str, flag: str) -> int:
    """ "4GiB", "512 MB", "1000": bytes. Raises ConfigError naming the flag."""
    stripped = text.strip()
    number = stripped.rstrip("BKMGTbkmgti ")
    unit = stripped[len(number) :].strip().lower().removesuffix("b")
    try:
        size = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        raise ConfigError(f"{flag} is {text!r}: give bytes, or a number with a unit such as 512MiB or 4GiB") from None
    if not 0 < size < float(1 << 60):
        raise ConfigError(f"{flag} is {text!r}: it must be more than 0 and less than 1 EiB")
    return int(size)
