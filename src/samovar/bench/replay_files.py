"""Runs to report on: folders of a replay or a simulation, or the harness's artifacts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from samovar.base.errors import ConfigError
from samovar.bench.agentx_tokens import read_artifacts
from samovar.workload.metrics_agentx import EXPORT
from samovar.workload.metrics_record import read_records
from samovar.workload.replay_folder import REQUESTS, RESULT, report_run
from samovar.workload.report_data import ReportRun
from samovar.workload.result import BenchResult

RUNS = ("replay", "simulate")
"""Names of results that have requests beside them."""


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """A run to report on: a folder of ours, or the harness's artifacts."""

    path: Path

    def read(self) -> ReportRun:
        """Raises ConfigError, naming the file."""
        folder = self.path.parent if self.path.is_file() else self.path
        if (folder / EXPORT).is_file():
            return read_artifacts(folder)
        file = folder / RESULT
        try:
            result = msgspec.json.decode(file.read_bytes(), type=BenchResult)
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {error.strerror}; a replay's --output folder is wanted") from error
        except msgspec.DecodeError as error:
            raise ConfigError(f"{file}: not a result file: {error}") from error
        if result.name not in RUNS:
            raise ConfigError(f"{file}: a result of {result.name!r}; a replay's or a simulation's is wanted")
        try:
            return report_run(folder.resolve().name, result, tuple(read_records(folder / REQUESTS)))
        except msgspec.ValidationError as error:
            raise ConfigError(f"{file}: {error}") from error
