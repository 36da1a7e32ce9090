"""The simulator against published figures: `python -m benchmarks.sim_published [--rows T1,T6] [--write-docs]`.

Runs are spread over processes. A result file keeps the rows that are not run again. `--write-docs` writes the table in
docs/simulator.md from the result file, misses included, and runs nothing unless rows are named.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
import json
from multiprocessing import get_context
from multiprocessing.pool import AsyncResult
from pathlib import Path
from queue import Queue
import sys
import time
from typing import Any

from benchmarks.sim_published_form import Row, Seen
from benchmarks.sim_published_page import DOCS, RESULT, record, rows_in, write_docs
from benchmarks.sim_published_rows import ROWS
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

Shares = Queue[tuple[int, float]]
"""Workers tell how far which job is."""


@dataclass(frozen=True, slots=True)
class Job:
    number: int
    row: str
    run: str
    share: float


def work(job: Job, shares: Shares) -> Seen:
    """In a worker."""
    row = next(row for row in ROWS if row.name == job.row)
    return row.runs[job.run](job.share, lambda share: shares.put((job.number, share)))


def run_all(rows: Sequence[Row], share: float, processes: int) -> dict[str, dict[str, Seen]]:
    """Every run of the rows, by row and name."""
    jobs = [Job(n, row, run, share) for n, (row, run) in enumerate((r.name, run) for r in rows for run in r.runs)]
    context = get_context("spawn")
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with (
        context.Manager() as manager,
        context.Pool(processes, maxtasksperchild=1) as pool,
        Progress(*columns, console=Console(stderr=True)) as bar,
    ):
        tasks = [bar.add_task(f"{job.row}: {job.run}", total=1.0) for job in jobs]
        shares: Shares = manager.Queue()
        seen = follow([pool.apply_async(work, (job, shares)) for job in jobs], shares, bar, tasks)
    found: dict[str, dict[str, Seen]] = {}
    for job, one in zip(jobs, seen, strict=True):
        found.setdefault(job.row, {})[job.run] = one
    return found


def follow(results: Sequence[AsyncResult[Seen]], shares: Shares, bar: Progress, tasks: Sequence[TaskID]) -> list[Seen]:
    """Waits for all. Raises what a run raised."""
    while not all(result.ready() for result in results):
        while not shares.empty():
            number, share = shares.get()
            bar.update(tasks[number], completed=share)
        for result in results:
            if result.ready() and not result.successful():
                result.get()
        time.sleep(0.2)
    return [result.get() for result in results]


def show(rows: Sequence[dict[str, Any]]) -> None:
    table = Table("row", "figure", "published", "simulated", "tolerance", "")
    for row in rows:
        for figure in row["figures"]:
            table.add_row(
                row["name"],
                figure["name"],
                figure["published"],
                figure["shown"],
                figure["tolerance"],
                figure["verdict"],
            )
    Console().print(table)


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", help=f"of {', '.join(row.name for row in ROWS)}; all without --write-docs")
    parser.add_argument("--share", type=float, default=1.0, help="of each run's length")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--result", type=Path, default=RESULT)
    parser.add_argument("--write-docs", action="store_true")
    chosen = parser.parse_args(arguments)
    names = [row.name for row in ROWS]
    wanted = names if chosen.rows is None else [name.strip() for name in chosen.rows.split(",")]
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"--rows {chosen.rows}: no row {unknown[0]}; there are {', '.join(names)}")
    if not 0 < chosen.share <= 1:
        parser.error(f"--share is {chosen.share:g}; it must be more than 0 and at most 1")
    runs_none = chosen.write_docs and chosen.rows is None
    chosen.wanted = [] if runs_none else [row for row in ROWS if row.name in wanted]
    return chosen


def main(arguments: Sequence[str]) -> int:
    chosen = options(arguments)
    if chosen.wanted:
        seen = run_all(chosen.wanted, chosen.share, chosen.processes)
        record(chosen.wanted, seen, chosen.share, chosen.result)
    rows = rows_in(json.loads(chosen.result.read_text()))
    show(rows)
    if chosen.write_docs:
        write_docs(rows, DOCS)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
