"""Reading measured steps: a log of any engine, or a small table that was published.

A log is JSON lines with the fields batch, prefill_tokens, kv_read_tokens and seconds (others are ignored), one line per
step and rank. A table is TOML with the same four as columns, its source and its date.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from samovar.base.errors import ConfigError
from samovar.sim.cost.step_fit import fit_table
from samovar.sim.cost.step_table import StepRow, StepTable, table_of
from samovar.spec.catalog import open_table
from samovar.spec.toml_table import TomlTable


def load_steps(name_or_path: str, max_knots: int = 10) -> StepTable:
    """The path of a log, which ends in .jsonl, or of a .toml table, or the name of a table that ships. Raises
    ConfigError."""
    if name_or_path.endswith(".jsonl"):
        return fit_table(read_log(Path(name_or_path)), name_or_path, max_knots)
    return _published(open_table("steps", name_or_path))


def read_log(path: Path) -> list[StepRow]:
    rows = []
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    rows.append(_row(line, f"{path}: line {number}"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error
    return rows


def _row(line: str, where: str) -> StepRow:
    try:
        return msgspec.json.decode(line, type=StepRow)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{where}: {error}") from error


def _published(table: TomlTable) -> StepTable:
    table.text("name")
    table.text("source")
    table.day("date")
    rows = [StepRow(int(b), int(p), int(k), s) for b, p, k, s in table.rows("rows", 4)]
    table.done()
    for index, row in enumerate(rows):
        if row.seconds <= 0:
            raise ConfigError(f"{table.where}: rows[{index}]: seconds is {row.seconds}; it must be more than 0")
    return table_of(rows, table.where)
