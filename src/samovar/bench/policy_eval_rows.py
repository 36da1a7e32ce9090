"""What an evaluation shows: the rows of its tables, and its page with pictures."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import plotly.graph_objects as go

from samovar.bench.policy_eval import EvalConfig, EvalResult, Point, in_range, name_of, verdict

BLUE, ORANGE, GREY = "#2563a8", "#d9822b", "#8a8f98"
_COLOURS = ("#3a8a55", "#8e44ad", "#c0392b", "#16a3a3", "#b8860b", "#e377c2", "#5b6472")
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#1c2430;max-width:1180px;margin:24px auto;padding:0 20px}
h1{font-size:24px;margin:0 0 4px} h2{font-size:17px;margin:28px 0 6px} p{color:#5b6472;margin:2px 0 8px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{padding:3px 14px 3px 0;text-align:right;white-space:nowrap}
td:first-child,th:first-child{text-align:left} th{color:#5b6472;font-weight:500} tr+tr td{border-top:1px solid #e8eaee}
"""


def point_table(config: EvalConfig, result: EvalResult, hints: str) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: one row per capacity, means over the seeds, all in percent of prompt tokens."""
    columns = ["capacity", "blocks", "ceiling", "lru", "belady"]
    for policy in config.judged:
        columns += [policy, "gap closed", "worst seed - lru"]
    rows = []
    for share in config.capacity:
        points = [point for point in result.points if point.capacity == share]
        row = [f"{100 * share:g}%", str(points[0].capacity_blocks)]
        row += [_percent(_mean(getattr(point, field) for point in points)) for field in ("ceiling", "lru", "belady")]
        for policy in config.judged:
            name = name_of(policy, hints)
            inside = in_range(points, config.lru_range)
            closed = f"{100 * _mean(point.closed(name) for point in inside):.0f}%" if inside else "-"
            row += [_percent(_mean(point.hit[name] for point in points)), closed]
            row.append(f"{100 * min(point.against_lru(name) for point in points):+.2f}")
        rows.append(row)
    return columns, rows


def verdict_table(config: EvalConfig, result: EvalResult) -> tuple[list[str], list[list[str]]]:
    low, high = config.lru_range
    columns = [
        "policy",
        "hints",
        f"gap closed where lru hits {100 * low:g}-{100 * high:g}%",
        "points",
        "worst - lru",
        "at",
    ]
    rows = []
    for policy in config.judged:
        for hints in config.hints:
            found = verdict(result, name_of(policy, hints), config.lru_range)
            closed = "-" if found.closed is None else f"{100 * found.closed:.0f}%"
            at = f"capacity {100 * found.worst_point.capacity:g}%, seed {found.worst_point.seed}"
            rows.append([policy, hints, closed, str(found.num_points), f"{100 * found.worst:+.2f} points", at])
    return columns, rows


def told(result: EvalResult) -> str:
    return (
        f"{result.num_sessions} sessions, {result.num_requests} requests, {result.input_tokens:,} prompt tokens, "
        f"{result.num_blocks:,} distinct blocks"
    )


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def eval_page(config: EvalConfig, result: EvalResult) -> str:
    """One HTML file that needs nothing else."""
    charts = [_hit_chart(config, result), _gap_chart(config, result)]  # the first one brings the library
    drawn = [
        chart.to_html(full_html=False, include_plotlyjs=at == 0, config={"displaylogo": False, "responsive": True})
        for at, chart in enumerate(charts)
    ]
    title = "Retention policies on recorded sessions"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<meta name='viewport' content='width=device-width'><title>{title}</title>",
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1><p>{escape(told(result))}</p>",
        _html_table(*verdict_table(config, result)) if config.judged else "",
        *drawn,
    ]
    for hints in config.hints:
        parts += [f"<h2>Hints: {escape(hints)}</h2>", _html_table(*point_table(config, result, hints))]
    return "\n".join([*parts, "</body></html>"])


def _html_table(columns: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _figure(title: str, x_title: str, y_title: str) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        title={"text": title, "font": {"size": 16}},
        template="plotly_white",
        height=420,
        margin={"l": 70, "r": 30, "t": 50, "b": 60},
        legend={"orientation": "v"},
    )
    figure.update_xaxes(title=x_title, tickformat=".0%")
    figure.update_yaxes(title=y_title, tickformat=".0%")
    return figure


def _names(config: EvalConfig) -> list[str]:
    return [name_of(policy, hints) for policy in config.judged for hints in config.hints]


def _hit_chart(config: EvalConfig, result: EvalResult) -> go.Figure:
    figure = _figure("Hit rate by capacity, mean over the seeds", "share of all distinct blocks", "prompt tokens hit")
    shares = sorted(config.capacity)
    by_share = {share: [point for point in result.points if point.capacity == share] for share in shares}

    def draw(name: str, values: list[float], colour: str, dash: str = "solid") -> None:
        line = {"color": colour, "dash": dash}
        figure.add_scatter(x=shares, y=values, mode="lines+markers", line=line, name=name)

    for field, name, colour, dash in (
        ("ceiling", "no limit", GREY, "dot"),
        ("belady", "belady", ORANGE, "solid"),
        ("lru", "lru", BLUE, "solid"),
    ):
        draw(name, [_mean(getattr(point, field) for point in by_share[share]) for share in shares], colour, dash)
    for at, name in enumerate(_names(config)):
        values = [_mean(point.hit[name] for point in by_share[share]) for share in shares]
        draw(name, values, _COLOURS[at % len(_COLOURS)])
    return figure


def _gap_chart(config: EvalConfig, result: EvalResult) -> go.Figure:
    figure = _figure("Share of the gap closed, every point", "prompt tokens that lru hits", "of the gap to belady")
    inside: list[Point] = in_range(result.points, config.lru_range)
    for at, name in enumerate(_names(config)):
        figure.add_scatter(
            x=[point.lru for point in inside],
            y=[point.closed(name) for point in inside],
            mode="markers",
            marker={"color": _COLOURS[at % len(_COLOURS)]},
            name=name,
            text=[f"capacity {100 * point.capacity:g}%, seed {point.seed}" for point in inside],
        )
    figure.add_hline(0.0, line={"color": GREY, "dash": "dot"})
    return figure
