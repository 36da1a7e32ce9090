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


def refuse_endless(values: Mapping[str, float]) -> None:
    """`values` by flag. Raises ConfigError for what is not finite."""
    for flag, value in values.items():
        if not math.isfinite(value):
            raise ConfigError(f"{flag} is {value:g}; it must be a finite number")


def refuse_share(flag: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ConfigError(f"{flag} is {value:g}; it must be from 0 to 1")


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
