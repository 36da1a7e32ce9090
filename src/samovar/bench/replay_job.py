"""A whole replay: look at the server, choose what fits it, run each concurrency, keep what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from samovar.base.errors import ConfigError
from samovar.base.folders import check_unused
from samovar.bench.replay import Live, PointRun, ReplayOptions, ReplayRun, make_client
from samovar.bench.replay_server import Server, ServerOptions, find_out
from samovar.workload.metrics import Point, summarise
from samovar.workload.metrics_cost import Price
from samovar.workload.metrics_record import RequestRecord
from samovar.workload.replay import ReplayConfig
from samovar.workload.replay_fit import Fit, Fitted, fit
from samovar.workload.replay_folder import ReplayFolder
from samovar.workload.replay_script import script_of
from samovar.workload.result import BenchResult, bench_result
from samovar.workload.session import SessionTree


@dataclass(frozen=True, slots=True)
class ReplayJob:
    url: str
    trees: tuple[SessionTree, ...]
    load: Mapping[str, Any]
    """Where the trees come from, for the result."""
    fit: Fit
    lanes: tuple[int, ...]
    """Concurrencies, in the order to run them."""
    rules: ReplayConfig
    """Its concurrency is replaced by each of `lanes`."""
    options: ReplayOptions
    server: ServerOptions
    gpus: int = 1
    price: Price | None = None
    slo: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise ConfigError(f"--gpus is {self.gpus}; it must be at least 1")


class Watcher(Protocol):
    """Whoever shows the run."""

    def begins(self, server: Server, fitted: Fitted) -> None: ...

    def live(self, figures: Live) -> None: ...

    def ended(self, point: Point) -> None: ...


async def run_job(
    job: ReplayJob, output: Path, watcher: Watcher, *, overwrite: bool = False
) -> tuple[BenchResult, str]:
    """The result, and why it is partial ("" when it is not). Raises ConfigError before the first request of the replay;
    afterwards every end, a cancellation included, leaves a result in `output`, which must hold nothing before, unless
    `overwrite`."""
    check_unused(output, "--output", overwrite=overwrite)
    async with make_client(job.options) as client:
        server = await find_out(client, job.url, job.server, job.options.tokens)
        fitted = fit(job.trees, server.max_tokens or _longest(job), job.fit)
        watcher.begins(server, fitted)
        run = ReplayRun(client, server, [script_of(tree) for tree in fitted.trees], job.options)
        points: list[Point] = []
        records: list[RequestRecord] = []
        with ReplayFolder(output) as folder:
            folder.finish(_result(job, server, fitted, []), [])
            for lanes in job.lanes:
                part = await run.point(replace(job.rules, concurrency=lanes), folder.add, watcher.live)
                points.append(_point(job, part))
                records += part.records
                result = _result(job, server, fitted, points)
                folder.finish(result, records)
                watcher.ended(points[-1])
                if not part.complete:
                    break
    return result, points[-1].stopped


def _longest(job: ReplayJob) -> int:
    """No limit is known: everything fits."""
    return max(
        (turn.input_tokens + turn.output_tokens for tree in job.trees for s in tree.streams for turn in s.turns),
        default=1,
    )


def _point(job: ReplayJob, part: PointRun) -> Point:
    return summarise(
        part.records,
        concurrency=part.concurrency,
        gpus=job.gpus,
        price=job.price,
        slo=dict(job.slo or {}),
        complete=part.complete,
        stopped=part.stopped,
        skipped_s=part.skipped_s,
        sessions_begun=part.sessions_begun,
        sessions_finished=part.sessions_finished,
    )


def _result(job: ReplayJob, server: Server, fitted: Fitted, points: list[Point]) -> BenchResult:
    rules, requests = asdict(job.rules), asdict(job.options)
    del rules["concurrency"], rules["seed"], requests["api_key"]
    load = {
        **job.load,
        "sessions": len(fitted.trees),
        "sessions_skipped": list(fitted.skipped),
        "sessions_cut": dict(fitted.cut),
    }
    complete = len(points) == len(job.lanes) and all(point.complete for point in points)
    return bench_result(
        "replay",
        {
            "server": asdict(server),
            "traces": load,
            "concurrency": list(job.lanes),
            "rules": rules,
            "requests": requests,
            "gpus": job.gpus,
            "slo": dict(job.slo or {}),
            "price": None if job.price is None else msgspec.to_builtins(job.price),
        },
        {"complete": complete, "points": [msgspec.to_builtins(point) for point in points]},
        seed=job.rules.seed,
    )
