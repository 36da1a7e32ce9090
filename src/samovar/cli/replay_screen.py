"""What a replay shows while it runs: one bar per concurrency with live figures, in a pipe or log a line now and then,
and a table at the end."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from samovar.bench.replay import Live
from samovar.bench.replay_server import Server
from samovar.cli.progress import Lines
from samovar.workload.metrics import Point
from samovar.workload.replay_fit import Fitted


class LiveTable:
    def __init__(self, console: Console, lanes: Sequence[int]) -> None:
        self._console = console
        self._lines = Lines(console)
        self._lanes = lanes
        self._points: list[Point] = []
        self._bars: dict[int, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[told]}"),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> LiveTable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        if self._points:
            self._console.print(self._table())
        for line in beside_the_table(self._points):
            self._console.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)

    def begins(self, server: Server, fitted: Fitted) -> None:
        size = "unknown context" if server.max_tokens is None else f"context {server.max_tokens:,}"
        block = f"block {server.block_tokens}{'' if server.block_tokens_known else ' (assumed)'}"
        self._console.print(
            f"{server.model} at {server.url}: {size}, {block}, prompts as {server.form}", highlight=False
        )
        if server.form_reason:
            self._console.print(f"  not as {server.form_reason}", highlight=False, markup=False, soft_wrap=True)
        if not server.forces_length:
            self._console.print("[yellow]this server takes no ignore_eos: answers may be shorter than recorded[/]")
        told = f"{len(fitted.trees)} sessions"
        if fitted.skipped:
            told += f", {len(fitted.skipped)} skipped as too long"
        if fitted.cut:
            told += f", {len(fitted.cut)} cut ({sum(fitted.cut.values())} calls left out)"
        self._console.print(told, highlight=False)
        for lanes in self._lanes:
            self._bars[lanes] = self._progress.add_task(f"concurrency {lanes}", total=None, start=False, told="")
        self._progress.start()

    def live(self, figures: Live) -> None:
        bar = self._bars[figures.concurrency]
        if figures.phase == "warmup":
            told = f"warm-up, {figures.in_flight} in flight, {figures.done} done"
            self._say(figures.concurrency, bar, told + _failed(figures))
            return
        self._progress.start_task(bar)
        done_s = min(figures.elapsed_s, figures.duration_s)
        self._progress.update(bar, total=figures.duration_s, completed=done_s)
        self._say(figures.concurrency, bar, _told(figures))

    def ended(self, point: Point) -> None:
        self._points.append(point)
        bar = self._bars[point.concurrency]
        self._progress.start_task(bar)
        told = f"{point.ok} requests, {point.failed} failed, {point.cut} cut off"
        self._progress.update(bar, total=1, completed=1, told=told)
        if len(self._points) < len(self._lanes):  # after the last one comes the table
            self._lines.note(f"concurrency {point.concurrency}: {told}")

    def _say(self, lanes: int, bar: TaskID, told: str) -> None:
        """`told` has markup."""
        self._progress.update(bar, told=told)
        self._lines.say(f"concurrency {lanes}: {Text.from_markup(told).plain}")

    def _table(self) -> Table:
        table = Table("\nlanes", box=SIMPLE_HEAD)
        rates = ("P90\ntok/s", "E2E\ntok/s", "tok/s\nper GPU", "TTFT\nP90", "\nhit", "hit\nlimit")
        columns = ("\nsent", "\nfailed", "cut\noff", *rates)
        for column in columns:
            table.add_column(column, justify="right")
        for p in self._points:
            table.add_row(
                f"{p.concurrency}{'' if p.complete else ' *'}",
                *(str(count) for count in (p.issued, p.failed, p.cut)),
                _number(p.p90_interactivity),
                _number(p.p90_e2e_interactivity),
                _number(p.tokens_per_gpu_s),
                "–" if p.ttft_s.p90 is None else f"{p.ttft_s.p90:,.2f} s",
                _share(p.hit_rate),
                _share(p.hit_ceiling),
            )
        return table


def beside_the_table(points: Sequence[Point]) -> list[str]:
    """What a reader of the table must know before comparing its rows: calls it leaves out, lengths that are not those
    asked for."""
    lines = []
    for p in points:
        told = []
        if p.warmup_failed:
            told.append(
                f"{p.warmup_failed} of {p.warmup_requests} warm-up requests failed (the table leaves these out)"
            )
        if p.short_answers:
            told.append(f"{p.short_answers} of {p.ok} answers were shorter than asked for")
        if p.prompt_drift:
            share = f"{100 * abs(p.prompt_drift):.2g}%"
            told.append(
                f"the server counted {share} {'more' if p.prompt_drift > 0 else 'fewer'} prompt tokens than sent"
            )
        if told:
            lines.append(f"concurrency {p.concurrency}: {'; '.join(told)}")
    return lines


def _failed(live: Live) -> str:
    return f", [red]{live.failed} failed[/]" if live.failed else ""


def _told(live: Live) -> str:
    done = f"{live.done} done{_failed(live)}"
    parts = [f"{live.elapsed_s:.0f} s", f"{live.lanes} lanes", f"{live.in_flight} in flight", done]
    if live.prompt_tokens:
        parts.append(f"hit {_share(live.cached_tokens / live.prompt_tokens)}")
        parts.append(f"ceiling {_share(live.ceiling_tokens / live.prompt_tokens)}")
        parts.append(f"{live.output_tokens / max(live.elapsed_s, 1e-9):,.0f} tokens/s out")
    return " · ".join(parts)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}%"
