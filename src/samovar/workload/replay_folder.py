"""The folder of a replay: requests.jsonl, result.json, report.html. Written as the run goes, so that a run that dies
leaves what it had. A benchmark and a simulation leave the same."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from samovar.base.errors import ConfigError
from samovar.base.folders import make_folder
from samovar.workload.metrics import Point, summarise
from samovar.workload.metrics_record import RequestRecord
from samovar.workload.report import report_page, write_report
from samovar.workload.report_data import ReportRun
from samovar.workload.result import BenchResult, write_result

KILLED = "the load generator was killed before the end"
REQUESTS, RESULT, REPORT = "requests.jsonl", "result.json", "report.html"
DERIVED = ("explained.html", "plan.html", "plan.json")
"""What a simulation or a plan leaves there: of a run before, it would stand beside figures it does not explain."""


class ReplayFolder:
    """Makes the folder. What a run before left there goes; whether it may is for `check_unused`, before anything is
    sent. Raises ConfigError."""

    def __init__(self, path: Path, title: str = "Agent replay") -> None:
        """`title` stands above the report, with the folder's name."""
        self.path = path
        self._title = title
        make_folder(path, "--output")
        try:
            for name in (RESULT, REPORT, *DERIVED):
                (path / name).unlink(missing_ok=True)
            self._file = (path / REQUESTS).open("wb", buffering=0)
        except OSError as error:
            raise ConfigError(f"--output {path}: cannot write there: {error.strerror}", param="output") from error
        self._encoder = msgspec.json.Encoder()

    def __enter__(self) -> ReplayFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, record: RequestRecord) -> None:
        """On disk at once."""
        self._file.write(self._encoder.encode(record) + b"\n")

    def finish(self, result: BenchResult, records: Iterable[RequestRecord]) -> None:
        """Writes result and report; called at the beginning and after every part of the run."""
        write_result(result, self.path / RESULT)
        run = report_run(self.path.name or "run", result, tuple(records))
        if run.points:
            write_report(report_page([run], f"{self._title}: {run.name}"), self.path / REPORT)


def report_run(name: str, result: BenchResult, records: tuple[RequestRecord, ...]) -> ReportRun:
    """What a result and its requests tell a reader. A part of the run whose requests are there and whose figures are
    not was killed: it is summed up here."""
    points = list(msgspec.convert(result.measured.get("points", []), type=tuple[Point, ...]))
    summed = {point.concurrency for point in points}
    for lanes in dict.fromkeys(record.concurrency for record in records):
        if lanes not in summed:
            mine = [record for record in records if record.concurrency == lanes]
            gpus, slo = result.config.get("gpus", 1), result.config.get("slo", {})
            points.append(summarise(mine, concurrency=lanes, gpus=gpus, slo=slo, complete=False, stopped=KILLED))
    points.sort(key=lambda point: point.concurrency)
    return ReportRun(name, _facts(result), tuple(points), records)


def _facts(result: BenchResult) -> dict[str, str]:
    facts = {
        "time": result.time,
        "samovar": f"{result.version} {result.revision[:12]}{'+dirty' if result.revision.endswith('+dirty') else ''}",
        "load generator": ", ".join(f"{key} {value}" for key, value in result.machine.items()),
        "seed": str(result.seed),
    }
    for name, value in result.config.items():
        facts[name.replace("_", " ")] = _text(value)
    return facts


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_text(item)}" for key, item in value.items()) or "–"
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value) or "–"
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
