"""`samovar check-log`: what a server recorded with `--record-path`, replayed in a fresh core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from rich.console import Console
import typer

from samovar.base.errors import ConfigError
from samovar.core.calls import Call, LogHeader
from samovar.core.replay import replay
from samovar.runner.call_log import read_call_log
from samovar.runner.retention import policy_of


def check_log(path: Annotated[Path, typer.Argument(help="A log written by `serve --record-path`.")]) -> None:
    """Replay a server's call log in a fresh core: every plan must come out again."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    records = read_call_log(path)
    header = next(records, None)
    if not isinstance(header, LogHeader):
        raise ConfigError(f"{path}: no call log: it has no header")
    counts: Counter[str] = Counter()

    def calls() -> Iterator[Call]:
        for record in records:
            if isinstance(record, Call):
                counts[type(record.call).__name__] += 1
                yield record

    plans = replay(header, calls(), policy_of(header))
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    Console().print(f"{path}: {plans} plans come out again ({kinds or 'no calls'})", markup=False, highlight=False)
