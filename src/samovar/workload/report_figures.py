"""The report's pictures. Each function draws one, over all runs given; colours go by run, dashes by what is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from samovar.workload.metrics import Point, Spread
from samovar.workload.metrics_record import RequestRecord
from samovar.workload.report_data import ReportRun, frontier, in_flight

COLOURS = ("#2563a8", "#d9822b", "#3a8a55", "#8e4585", "#b33a3a", "#5b6472")
ROLE_COLOURS = {"main": "#2563a8", "subagent": "#d9822b", "aux": "#3a8a55"}
WAITING, BROKEN, GREY = "rgba(138,143,152,.55)", "#b33a3a", "#8a8f98"
ROLE_NAMES = {"main": "main agent", "subagent": "sub-agent", "aux": "side call"}


def colour(at: int) -> str:
    return COLOURS[at % len(COLOURS)]


def pareto(runs: Sequence[ReportRun], x: Callable[[Point], float | None], x_title: str, slo: float | None) -> go.Figure:
    figure = plain(x_title, "tokens per second and accelerator")
    for at, run in enumerate(runs):
        points = [(value, point) for point in run.points if (value := x(point)) is not None]
        best = frontier((value, point.tokens_per_gpu_s) for value, point in points)
        figure.add_scatter(
            x=[value for value, _ in best], y=[rate for _, rate in best], mode="lines", name=f"{run.name}: frontier",
            line={"color": colour(at), "width": 2}, hoverinfo="skip",
        )  # fmt: skip
        figure.add_scatter(
            x=[value for value, _ in points],
            y=[point.tokens_per_gpu_s for _, point in points],
            mode="markers+text",
            text=[str(point.concurrency) for _, point in points],
            textposition="top right",
            name=f"{run.name}: concurrency",
            marker={
                "color": colour(at), "size": 10, "line": {"color": colour(at), "width": 2},
                "symbol": ["circle" if point.complete else "x-thin" for _, point in points],
            },
            hovertemplate="%{x:.1f} tokens/s, %{y:,.0f} tokens/s and accelerator, concurrency %{text}<extra></extra>",
        )  # fmt: skip
    if slo is not None:
        figure.add_vline(
            slo,
            line={"color": BROKEN, "dash": "dash"},
            annotation_text=f"SLO {slo:g}",
            annotation_position="bottom right",
        )
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    return figure


def token_split(runs: Sequence[ReportRun]) -> go.Figure:
    figure = plain("", "tokens per second and accelerator")
    names = [_point_name(runs, run, point) for run in runs for point in run.points]
    points = [point for run in runs for point in run.points]
    for name, values, shade in (
        ("computed", [p.computed_per_gpu_s for p in points], "#d9822b"),
        ("cached", [p.cached_per_gpu_s for p in points], "#9fc3e8"),
        ("generated", [p.generated_per_gpu_s for p in points], "#2563a8"),
    ):
        figure.add_bar(x=names, y=values, name=name, marker={"color": shade}, hovertemplate="%{y:,.1f} %{x}")
    figure.update_layout(barmode="stack")
    figure.update_xaxes(type="category")
    return figure


def spreads(runs: Sequence[ReportRun], of: Callable[[Point], Spread], y_title: str) -> go.Figure:
    """P50, P90 and P99 over concurrency."""
    figure = plain("concurrency", y_title)
    for at, run in enumerate(runs):
        lines = (("P50", [of(p).p50 for p in run.points], "dot"), ("P90", [of(p).p90 for p in run.points], "solid"),
                 ("P99", [of(p).p99 for p in run.points], "dash"))  # fmt: skip
        for name, values, dash in lines:
            figure.add_scatter(
                x=[str(p.concurrency) for p in run.points], y=values, mode="lines+markers",
                name=name if len(runs) == 1 else f"{run.name} {name}", line={"color": colour(at), "dash": dash},
            )  # fmt: skip
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")
    return figure


def hit_rates(runs: Sequence[ReportRun]) -> go.Figure:
    figure = plain("concurrency", "share of prompt tokens")
    for at, run in enumerate(runs):
        prefix = "" if len(runs) == 1 else f"{run.name} "
        for name, values, dash in (
            ("measured", [p.hit_rate for p in run.points], "solid"),
            ("ceiling", [p.hit_ceiling for p in run.points], "dot"),
        ):
            figure.add_scatter(
                x=[str(p.concurrency) for p in run.points], y=values, mode="lines+markers", name=prefix + name,
                line={"color": colour(at), "dash": dash}, hovertemplate="%{y:.2%}",
            )  # fmt: skip
    figure.update_xaxes(type="category")
    figure.update_yaxes(tickformat=".0%", range=[0, 1.03])
    return figure


def swim_lanes(records: Sequence[RequestRecord]) -> go.Figure:
    """Agents of the lanes over time."""
    rows = sorted({(r.lane, r.stream) for r in records})
    names = {row: f"lane {row[0]}" if row[1] == 0 else f"lane {row[0]} · agent {row[1]}" for row in rows}
    figure = plain("seconds", "", height=110 + 22 * max(3, len(rows)))
    groups: dict[tuple[str, str], list[RequestRecord]] = {}
    for record in records:
        kind = (ROLE_NAMES[record.role], ROLE_COLOURS[record.role])
        groups.setdefault(kind if record.status == "ok" else ("failed or cut off", BROKEN), []).append(record)
    _bars(figure, records, names, "waiting for the first token", WAITING, lambda r: (r.start_s, _first(r)))
    for (name, shade), members in groups.items():
        _bars(figure, members, names, name, shade, lambda r: (_first(r), r.end_s))
    figure.update_layout(barmode="overlay", bargap=0.25, hovermode="closest")
    order = [names[row] for row in rows]
    figure.update_yaxes(autorange="reversed", type="category", categoryorder="array", categoryarray=order)
    return figure


def flight(records: Sequence[RequestRecord], lanes: int) -> go.Figure:
    times, counts = in_flight(records)
    figure = plain("seconds", "requests", height=220)
    figure.add_scatter(x=times, y=counts, mode="lines", name="in flight", line={"color": COLOURS[0], "shape": "hv"})
    figure.add_hline(lanes, line={"color": GREY, "dash": "dot"}, annotation_text=f"{lanes} lanes")
    figure.update_yaxes(rangemode="tozero")
    return figure


def plain(x_title: str, y_title: str, height: int = 360) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 80, "r": 24, "t": 34, "b": 50},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"},
    )
    figure.update_xaxes(title=x_title)
    figure.update_yaxes(title=y_title)
    return figure


def _first(record: RequestRecord) -> float:
    return record.end_s if record.first_s is None else record.first_s


def _bars(
    figure: go.Figure,
    records: Sequence[RequestRecord],
    rows: dict[tuple[int, int], str],
    name: str,
    shade: str,
    span: Callable[[RequestRecord], tuple[float, float]],
) -> None:
    spans = [span(r) for r in records]
    figure.add_bar(
        y=[rows[r.lane, r.stream] for r in records],
        x=[end - start for start, end in spans],
        base=[start for start, _ in spans],
        orientation="h",
        name=name,
        marker={"color": shade, "line": {"width": 0}},
        text=[_told(r) for r in records],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
    )


def _told(record: RequestRecord) -> str:
    cached = "?" if record.cached_tokens is None else f"{record.cached_tokens:,}"
    told = (
        f"{record.tree}, turn {record.turn + 1}<br>{record.prompt_tokens:,} tokens in, {cached} cached, "
        f"{record.output_tokens:,} out<br>{record.end_s - record.start_s:.2f} s"
    )
    return told if not record.error else f"{told}<br>{record.error}"


def _point_name(runs: Sequence[ReportRun], run: ReportRun, point: Point) -> str:
    return str(point.concurrency) if len(runs) == 1 else f"{run.name} · {point.concurrency}"
