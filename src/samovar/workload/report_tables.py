"""The report's tables, as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from samovar.workload.metrics import Point
from samovar.workload.metrics_formulas import FORMULAS
from samovar.workload.metrics_groups import breakdowns
from samovar.workload.report_data import ReportRun

Row = tuple[str, str, Callable[[Point], str]]
"""Label, key of its formula, cell."""


def number(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}%"


def milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1e3 * seconds:,.1f} ms"


def formula(key: str) -> str:
    return f"<details class='how'><summary>formula</summary>{escape(FORMULAS[key])}</details>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], raw_first: bool = False) -> str:
    """Cells are escaped; with `raw_first` the first of each row is HTML already."""
    body = []
    for row in rows:
        cells = [row[0] if raw_first else escape(row[0]), *map(escape, row[1:])]
        body.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    top = "".join(f"<th>{escape(text)}</th>" for text in head)
    return f"<div class='wide'><table><tr>{top}</tr>{''.join(body)}</table></div>"


_ROWS: tuple[Row, ...] = (
    ("P90 interactivity, tokens/s", "p90_interactivity", lambda p: number(p.p90_interactivity)),
    ("  to the last token", "p90_interactivity_last_token", lambda p: number(p.p90_interactivity_last_token)),
    ("  failed and cut counted in", "p90_interactivity_all", lambda p: number(p.p90_interactivity_all)),
    ("P90 E2E-normalised interactivity, tokens/s", "p90_e2e_interactivity", lambda p: number(p.p90_e2e_interactivity)),
    ("Mean E2E interactivity, tokens/s", "mean_e2e_interactivity", lambda p: number(p.mean_e2e_interactivity)),
    ("Tokens per second and accelerator", "tokens_per_gpu_s", lambda p: number(p.tokens_per_gpu_s)),
    ("  computed", "split", lambda p: number(p.computed_per_gpu_s)),
    ("  cached", "split", lambda p: number(p.cached_per_gpu_s)),
    ("  generated", "split", lambda p: number(p.generated_per_gpu_s)),
    ("TTFT P50 / P90 / P99", "ttft_s", lambda p: _three(p.ttft_s.p50, p.ttft_s.p90, p.ttft_s.p99)),
    ("ITL P50 / P90 / P99", "itl_s", lambda p: _three(p.itl_s.p50, p.itl_s.p90, p.itl_s.p99)),
    ("Full ITL P50 / P90 / P99", "full_itl_s", lambda p: _three(p.full_itl_s.p50, p.full_itl_s.p90, p.full_itl_s.p99)),
    ("E2E P50 / P90 / P99", "latency_s", lambda p: _three(p.latency_s.p50, p.latency_s.p90, p.latency_s.p99)),
    ("Hit rate", "hit_rate", lambda p: share(p.hit_rate)),
    ("  ceiling", "hit_ceiling", lambda p: share(p.hit_ceiling)),
    ("Prompt tokens beyond those planned", "prompt_drift", lambda p: share(p.prompt_drift)),
    ("Requests issued", "requests", lambda p: f"{p.issued}"),
    ("  ended well / failed / cut off", "requests", lambda p: f"{p.ok} / {p.failed} / {p.cut}"),
    ("  shorter than asked for", "requests", lambda p: f"{p.short_answers}"),
    ("  made before measuring / failed", "requests", lambda p: f"{p.warmup_requests} / {p.warmup_failed}"),
    ("Kept the SLO", "goodput_per_s", lambda p: _slo(p)),
    ("Sessions begun / finished", "swim_lane", lambda p: f"{p.sessions_begun} / {p.sessions_finished}"),
    ("Idle time cut out, s", "skipped_s", lambda p: number(p.skipped_s)),
    ("Sent after due, P99", "lag_s", lambda p: milliseconds(p.lag_s.p99)),
    ("Measured window, s", "tokens_per_gpu_s", lambda p: number(p.window_s)),
)


def points_table(run: ReportRun) -> str:
    """A column per concurrency; the formula of each row is a click away."""
    head = ["concurrency", *(f"{p.concurrency}{'' if p.complete else ' (partial)'}" for p in run.points)]
    rows = [
        [f"<details class='row'><summary>{escape(label)}</summary>{escape(FORMULAS[key])}</details>"
         if not label.startswith("  ")
         else f"<details class='row inner'><summary>{escape(label.strip())}</summary>{escape(FORMULAS[key])}</details>",
         *(cell(p) for p in run.points)]
        for label, key, cell in _ROWS
    ]  # fmt: skip
    return table(head, rows, raw_first=True)


def errors_table(runs: Sequence[ReportRun]) -> str:
    rows = [
        [run.name, str(point.concurrency), str(count), error]
        for run in runs
        for point in run.points
        for error, count in sorted(point.errors.items(), key=lambda item: -item[1])
    ]
    return table(["run", "concurrency", "requests", "error"], rows) if rows else ""


def costs_table(runs: Sequence[ReportRun]) -> str:
    rows = [
        [
            run.name,
            str(point.concurrency),
            f"{cost.basis}, ${cost.hourly:.2f}/h",
            *(
                _dollars(value)
                for value in (
                    cost.per_million_tokens,
                    cost.per_million_uncached_tokens,
                    cost.per_turn,
                    cost.per_session,
                )
            ),
        ]
        for run in runs
        for point in run.points
        for cost in point.costs
    ]
    head = ["run", "concurrency", "price", "M tokens", "M uncached tokens", "turn", "session"]
    return table(head, rows) if rows else ""


def breakdown_tables(run: ReportRun, point: Point) -> str:
    head = [
        "requests",
        "not ended well",
        "TTFT P50",
        "TTFT P90",
        "full ITL P90",
        "hit rate",
        "ceiling",
        "computed",
        "out",
    ]
    parts = []
    for title, groups in breakdowns(run.of(point)).items():
        rows = [
            [
                g.name,
                str(g.requests),
                str(g.failed),
                milliseconds(g.ttft_p50_s),
                milliseconds(g.ttft_p90_s),
                milliseconds(g.full_itl_p90_s),
                share(g.hit_rate),
                share(g.hit_ceiling),
                "–" if g.computed_tokens is None else f"{g.computed_tokens:,}",
                f"{g.output_tokens:,}",
            ]
            for g in groups
        ]
        parts.append(table([title, *head], rows))
    return "".join(parts)


def facts_table(runs: Sequence[ReportRun]) -> str:
    names = list(dict.fromkeys(name for run in runs for name in run.facts))
    rows = [[name, *(run.facts.get(name, "") for run in runs)] for name in names]
    return table(["", *(run.name for run in runs)], rows)


def _three(*seconds: float | None) -> str:
    return " / ".join(milliseconds(value).removesuffix(" ms") for value in seconds) + " ms"


def _slo(point: Point) -> str:
    if not point.slo:
        return "–"
    return f"{point.slo_met} of {point.issued} ({point.goodput_per_s:.2f}/s)"


def _dollars(value: float | None) -> str:
    if value is None:
        return "–"
    return f"${value:,.2f}" if value >= 1 else f"${value:.4g}"
