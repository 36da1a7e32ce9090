"""The report: one HTML file that needs nothing else. Over one run, or several laid over each other."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import plotly.graph_objects as go

from samovar.base.errors import ConfigError
from samovar.workload import report_figures as figures
from samovar.workload.metrics_formulas import FORMULAS
from samovar.workload.report_data import ReportRun
from samovar.workload.report_tables import (
    breakdown_tables,
    costs_table,
    errors_table,
    facts_table,
    formula,
    points_table,
)

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#1c2430;max-width:1180px;margin:24px auto;padding:0 20px}
h1{font-size:24px;margin:0 0 4px} h2{font-size:18px;margin:34px 0 4px} h3{font-size:15px;margin:20px 0 2px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:6px 0 14px}
td,th{padding:3px 18px 3px 0;text-align:right;vertical-align:top} th{color:#5b6472;font-weight:500}
td:first-child,th:first-child{text-align:left} tr+tr td{border-top:1px solid #e8eaee}
.wide{overflow-x:auto} .two{display:grid;grid-template-columns:1fr 1fr;gap:0 28px}
@media(max-width:900px){.two{grid-template-columns:1fr}}
details{color:#5b6472} details summary{cursor:pointer} .how{font-size:13px;margin:0 0 2px}
.row summary{color:#1c2430;list-style:none} .row summary::after{content:" = ?";color:#8a8f98;font-size:12px}
.row{max-width:420px;font-size:13px} .row summary{font-size:15px} .inner summary{padding-left:18px}
.facts td:not(:first-child){text-align:left} .facts td:first-child{white-space:nowrap;color:#5b6472}
.partial{background:#fbe9e7;border-left:4px solid #b33a3a;padding:8px 14px;margin:12px 0}
"""


def report_page(runs: Sequence[ReportRun], title: str) -> str:
    """Raises ConfigError when there is nothing to draw."""
    if not any(run.points for run in runs):
        raise ConfigError("nothing to report: no run has a measured point")
    slo = _slo(runs)
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<meta name='viewport' content='width=device-width'><title>{escape(title)}</title>",
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>",
        *_partial(runs),
        "<h2>Pareto frontier</h2><div class='two'>",
        _chart(
            "Speed of an answer once it has begun",
            figures.pareto(
                runs, lambda p: p.p90_interactivity, "P90 interactivity, tokens/s", slo.get("interactivity")
            ),
            "p90_interactivity",
            "tokens_per_gpu_s",
            "frontier",
            library=True,
        ),
        _chart(
            "Speed of an answer, the wait for it included",
            figures.pareto(
                runs,
                lambda p: p.p90_e2e_interactivity,
                "P90 E2E-normalised interactivity, tokens/s",
                slo.get("e2e_interactivity"),
            ),
            "p90_e2e_interactivity",
            "tokens_per_gpu_s",
            "frontier",
        ),
        "</div><h2>Where tokens come from, what the cache finds</h2><div class='two'>",
        _chart("Tokens per second and accelerator", figures.token_split(runs), "split"),
        _chart("Hit rate and its ceiling", figures.hit_rates(runs), "hit_rate", "hit_ceiling"),
        "</div><h2>Latency</h2><div class='two'>",
        _chart("Time to first token", figures.spreads(runs, lambda p: p.ttft_s, "seconds"), "ttft_s"),
        _chart("Inter-token latency, to the end of the stream",
               figures.spreads(runs, lambda p: p.full_itl_s, "seconds"), "full_itl_s"),
        "</div>",
        *(part for run in runs for part in _run(run, alone=len(runs) == 1)),
        *_titled("Cost", costs_table(runs), "cost"),
        *_titled("Errors", errors_table(runs), "requests"),
        "<h2>What was run</h2>",
        f"<div class='facts'>{facts_table(runs)}</div>",
        "</body></html>",
    ]  # fmt: skip
    return "\n".join(parts)


def write_report(page: str, path: Path) -> None:
    """Raises ConfigError when the file cannot be written."""
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error


def _run(run: ReportRun, *, alone: bool) -> list[str]:
    """Figures of one run. Laid over others, only its largest concurrency gets pictures and breakdowns."""
    name = "" if alone else f"{escape(run.name)}: "
    parts = [f"<h2>{'Figures' if alone else f'{name}figures'}</h2>", points_table(run)]
    for point in run.points if alone else run.points[-1:]:
        records = run.of(point)
        if not records:
            continue
        lanes = f"{'Concurrency' if alone else f'{name}concurrency'} {point.concurrency}"
        parts += [
            f"<h2>{lanes}: sessions</h2>",
            _chart("Agents over time", figures.swim_lanes(records), "swim_lane"),
            _chart("Requests in flight", figures.flight(records, point.concurrency), "in_flight"),
            f"<h2>{lanes}: breakdown</h2>",
            formula("hit_class"),
            breakdown_tables(run, point),
        ]
    return parts


def _chart(title: str, figure: go.Figure, *formulas: str, library: bool = False) -> str:
    """`library`: this one brings plotly.js with it, for all."""
    told = "<br>".join(escape(FORMULAS[key]) for key in formulas)
    drawn = figure.to_html(
        full_html=False, include_plotlyjs=library, config={"displayModeBar": False, "responsive": True}
    )
    return f"<div><h3>{escape(title)}</h3><details class='how'><summary>formula</summary>{told}</details>{drawn}</div>"


def _titled(title: str, html: str, key: str) -> list[str]:
    return [f"<h2>{title}</h2>", formula(key), html] if html else []


def _partial(runs: Sequence[ReportRun]) -> list[str]:
    return [
        f"<p class='partial'><b>Partial.</b> {escape(run.name)}, concurrency {point.concurrency}: "
        f"{escape(point.stopped or 'the run was stopped')}</p>"
        for run in runs
        for point in run.points
        if not point.complete
    ]


def _slo(runs: Sequence[ReportRun]) -> dict[str, float]:
    found: dict[str, float] = {}
    for run in runs:
        for point in run.points:
            found |= point.slo
    return found
