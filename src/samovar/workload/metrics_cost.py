"""Money: a dated table of hourly prices, and what tokens, turns and sessions cost at a measured rate."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
import tomllib
from typing import Any

import msgspec

from samovar.base.errors import ConfigError


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars per hour of one accelerator."""

    gpu: str
    date: str
    source: str
    own: float | None = None
    rent: float | None = None


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars, at one hourly rate."""

    basis: str
    """own or rent."""
    hourly: float
    """Of one accelerator."""
    per_million_tokens: float | None
    """Prompt (cached or not) and generated tokens alike: the figure of dashboards."""
    per_million_uncached_tokens: float | None
    """Only tokens that had to be computed or generated count."""
    per_turn: float | None
    per_session: float | None


def price_of(gpu: str, table: Path | None = None, *, own: float | None = None, rent: float | None = None) -> Price:
    """From `table` or the one that ships with the project; `own` and `rent` override it, and are enough for an
    accelerator that no table knows. Raises ConfigError."""
    data = _read(table)
    known = data.get("gpu", {})
    entry = known.get(gpu)
    if entry is None and own is None and rent is None:
        raise ConfigError(
            f"--gpu {gpu}: the price table has {', '.join(sorted(known))}; others need --price", param="gpu"
        )
    entry = entry or {}
    return Price(
        gpu=gpu,
        date=str(data.get("date", "undated")) if own is None and rent is None else "given on the command line",
        source=str(data.get("source", table or "")),
        own=own if own is not None else entry.get("own"),
        rent=rent if rent is not None else entry.get("rent"),
    )


def _read(table: Path | None) -> dict[str, Any]:
    name = str(table or "the price table")
    try:
        text = table.read_text() if table else resources.files("samovar.workload").joinpath("prices.toml").read_text()
        data = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"--prices: cannot read {name}: {error.strerror}", param="prices") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--prices: {name} is not TOML: {error}", param="prices") from error
    known = data.get("gpu", {})
    if not isinstance(known, dict):
        raise ConfigError(f"--prices: {name}: gpu is {known!r}; it must be a table of accelerators", param="prices")
    for gpu, entry in known.items():
        for basis in ("own", "rent"):
            value = entry.get(basis) if isinstance(entry, dict) else entry
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
                raise ConfigError(f"--prices: {name}: gpu.{gpu}.{basis} is {value!r}; it must be dollars per hour")
    return data


def costs(
    price: Price, *, gpus: int, window_s: float, tokens: int, uncached_tokens: int, turns: int, sessions: float
) -> tuple[Cost, ...]:
    """`sessions` may be a fraction: the share of its session tree that each finished turn is, summed."""
    found = []
    for basis, hourly in (("own", price.own), ("rent", price.rent)):
        if hourly is None:
            continue
        spent = hourly * gpus * window_s / 3600
        found.append(
            Cost(
                basis=basis,
                hourly=hourly,
                per_million_tokens=1e6 * spent / tokens if tokens else None,
                per_million_uncached_tokens=1e6 * spent / uncached_tokens if uncached_tokens else None,
                per_turn=spent / turns if turns else None,
                per_session=spent / sessions if sessions else None,
            )
        )
    return tuple(found)
