"""What `samovar simulate` and `samovar plan` refuse before they work: numbers out of range, and results that could not
be written. Every message names the flag."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
import math
from pathlib import Path
import re

from samovar.base.errors import ConfigError
from samovar.base.folders import check_writable
from samovar.spec.number_format import FORMATS

MOST_BLOCKS = 20_000_000
"""Of a rank: to keep track of them takes half a gigabyte here."""
MOST_PROCESSES = 256
"""Each holds all sessions and a simulation of its own."""

MOST_DEVICES = 4096
MOST_DRAFTS = 64
MOST_SECONDS = 1e7
"""Of a measured part: beyond it clocks lose the microseconds of a step."""

_FIELDS = (
    "long_prefill_token_threshold",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "num_speculative_tokens",
    "prefill_schedule_interval",
)
"""Of the engine, each named as its flag is."""

_FIELD = re.compile(rf"(?<![\w-])(?:{'|'.join(_FIELDS)})\b")


def refuse_below(least: int, **values: int | None) -> None:
    """`values` by their flags' names; None is not given. Raises ConfigError."""
    for name, value in values.items():
        if value is not None and value < least:
            raise ConfigError(f"{_flag(name)} is {value}; it must be at least {least}", param=name)


def refuse_above(most: int, **values: int | None) -> None:
    """`values` by their flags' names; None is not given. Raises ConfigError."""
    for name, value in values.items():
        if value is not None and value > most:
            raise ConfigError(f"{_flag(name)} is {value}; it must be at most {most}", param=name)


def refuse_endless(values: Mapping[str, float]) -> None:
    """`values` by flag. Raises ConfigError for what is not finite."""
    for flag, value in values.items():
        if not math.isfinite(value):
            raise ConfigError(f"{flag} is {value:g}; it must be a finite number")


def refuse_times(**values: float | None) -> None:
    """`values` by their flags' names, in seconds; None is not given. Raises ConfigError for what is no time."""
    for name, value in values.items():
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(f"{_flag(name)} is {value:g}; it must be a finite number above 0", param=name)


def refuse_share(flag: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ConfigError(f"{flag} is {value:g}; it must be from 0 to 1")


def check_memory(kv_cache_dtype: str, utilization: float) -> None:
    """Raises ConfigError for what no layout could have."""
    if kv_cache_dtype != "auto" and kv_cache_dtype not in FORMATS:
        raise ConfigError(f"--kv-cache-dtype {kv_cache_dtype}: must be one of auto, {', '.join(FORMATS)}")
    if not 0 < utilization <= 1:
        raise ConfigError(f"--gpu-memory-utilization is {utilization:g}; it must be more than 0 and at most 1")


def check_results(json: Path | None) -> None:
    """Raises ConfigError when --json names what cannot be written; - is stdout."""
    if json is not None and str(json) != "-":
        check_writable(json, "--json")


@contextmanager
def fields_as_flags() -> Iterator[None]:
    """Complaints of the engine's own settings name the flags that set them."""
    try:
        yield
    except ConfigError as error:
        told = _FIELD.sub(lambda found: _flag(found[0]), error.message)
        if told == error.message:
            raise
        raise ConfigError(told, param=error.param) from None


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")
