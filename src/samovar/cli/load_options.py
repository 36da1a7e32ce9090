"""Flags about a load of agent sessions and its figures, for every command that replays one, and how they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import math
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import typer

from samovar.base.errors import ConfigError
from samovar.workload.reading import ReadCounts, read_sessions
from samovar.workload.replay_fit import Fit, Fitted, fit, peak_tokens
from samovar.workload.scale import ScaleCounts, divisor, scaled
from samovar.workload.session import SessionTree

T = TypeVar("T")

MAX_LANES = 2048
"""Beyond this the HTTP client's connection pool, whose work grows with the square, measures itself."""

WHAT, RULES, JUDGE, OUT = "What to replay", "Rules", "Figures", "Results"

Trace = Annotated[
    list[Path], typer.Option("--trace", help="Trace files or folders (several may be given).", rich_help_panel=WHAT)
]
Scale = Annotated[
    float,
    typer.Option("--scale", help="Shrink all lengths; reuse stays as it is (1/16 = 0.0625).", rich_help_panel=WHAT),
]
FitBy = Annotated[
    str, typer.Option("--fit", help="Sessions longer than the context: skip or cut.", rich_help_panel=WHAT)
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave broken trace files out.", rich_help_panel=WHAT)]
Sessions = Annotated[
    int | None,
    typer.Option("--sessions", help="Session trees to begin for each.", show_default="no limit", rich_help_panel=WHAT),
]
TimeScale = Annotated[
    float, typer.Option("--time-scale", help="Stretch recorded gaps; below 1 tools are faster.", rich_help_panel=RULES)
]
Start = Annotated[
    str,
    typer.Option(
        "--start", help="First sessions begin at a share of theirs drawn from FROM:TO.", rich_help_panel=RULES
    ),
]
WarmupCalls = Annotated[
    int,
    typer.Option("--warmup-calls", help="More calls per lane before measuring (AgentX: 10).", rich_help_panel=RULES),
]
IdleCap = Annotated[float, typer.Option("--idle-cap", help="Longest time with nothing running.", rich_help_panel=RULES)]
TreeIdleCap = Annotated[
    float,
    typer.Option(
        "--tree-idle-cap", help="Longest time with nothing running of one session tree.", rich_help_panel=RULES
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Of the starting points.", rich_help_panel=RULES)]
Slo = Annotated[
    list[str] | None,
    typer.Option("--slo", help="p90_interactivity=50, p90_ttft_s=2, ...", show_default=False, rich_help_panel=JUDGE),
]
PriceText = Annotated[
    str | None,
    typer.Option(
        "--price", help="$/h instead of the table's: own=1.2,rent=2.9.", show_default=False, rich_help_panel=JUDGE
    ),
]
Prices = Annotated[
    Path | None, typer.Option("--prices", help="Another price table (TOML).", show_default=False, rich_help_panel=JUDGE)
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Also into a folder that is not empty.", rich_help_panel=OUT)
]


@dataclass(frozen=True, slots=True)
class Loaded:
    trees: tuple[SessionTree, ...]
    described: dict[str, Any]
    """For the result: paths, scale, what was left out."""
    notes: tuple[str, ...]

    @property
    def longest_tokens(self) -> int:
        """Of a prompt with its answer."""
        return max((peak_tokens(tree) for tree in self.trees), default=1)


def read_load(trace: list[Path], scale: float, skip_bad: bool) -> Loaded:
    """Raises TraceError, ConfigError."""
    counts, sizes = ReadCounts(), ScaleCounts()
    try:
        n = divisor(scale)
    except ConfigError as error:
        raise ConfigError(error.message.replace("--factor", "--scale"), param="scale") from None
    trees = tuple(scaled(read_sessions(trace, skip_bad=skip_bad, counts=counts), n, sizes, "--scale"))
    if not trees:
        raise ConfigError(_nothing_left(counts, sizes))
    described = {
        "paths": [str(path) for path in trace],
        "scale": scale,
        "files_skipped": len(counts.skipped),
        "sessions_emptied": sizes.emptied,
    }
    return Loaded(trees, described, (sizes.told(),) if sizes.emptied else ())


def _nothing_left(counts: ReadCounts, sizes: ScaleCounts) -> str:
    told = [sizes.told()] if sizes.emptied else []
    if counts.skipped:
        told.append(
            f"--skip-bad left out {len(counts.skipped)} of {counts.files} files, the first: {counts.skipped[0]}"
        )
    return ": ".join(("no sessions to replay", *told))


def fit_load(loaded: Loaded, max_tokens: int, how: str, limit: str) -> Fitted:
    """`limit`: what sets the context, for the ConfigError when nothing is left."""
    chosen = one_of("--fit", how, get_args(Fit))
    try:
        return fit(loaded.trees, max_tokens, chosen)
    except ConfigError as error:
        raise ConfigError(f"{limit}: {error.message}", param=error.param) from None


def dollars(text: str | None) -> dict[str, float]:
    """`own=1.2,rent=2.9`. Raises ConfigError."""
    given: dict[str, float] = {}
    for part in text.split(",") if text else ():
        name, _, number = part.partition("=")
        try:
            given[name.strip()] = float(number)
        except ValueError:
            given[""] = 0.0
    if given.keys() - {"own", "rent"} or any(not 0 <= value < math.inf for value in given.values()):
        raise ConfigError(f"--price {text}: must be own=DOLLARS, rent=DOLLARS or both, with a comma between")
    return given


def concurrencies(text: str) -> tuple[int, ...]:
    try:
        lanes = tuple(int(part) for part in text.split(","))
    except ValueError:
        lanes = ()
    if not lanes or any(not 1 <= lane <= MAX_LANES for lane in lanes) or len(set(lanes)) != len(lanes):
        raise ConfigError(f"--concurrency {text}: must be different numbers from 1 to {MAX_LANES}, with commas between")
    return lanes


def pair(flag: str, text: str, kind: Callable[[str], T]) -> tuple[T, T]:
    low, _, high = text.partition(":")
    try:
        return kind(low), kind(high)
    except ValueError:
        raise ConfigError(f"{flag} {text}: must be two numbers with a colon between") from None


def one_of(flag: str, value: str, allowed: tuple[T, ...]) -> T:
    for one in allowed:
        if one == value:
            return one
    raise ConfigError(f"{flag} {value}: must be one of {', '.join(map(str, allowed))}")
