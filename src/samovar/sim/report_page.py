"""The page that explains a simulation: where turns spend their time, what bounds them, who holds the KV over time."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from samovar.sim.outcome import MemorySample
from samovar.sim.report_limits import CAUSES
from samovar.sim.report_tables import (
    Simulated,
    Table,
    evidence_table,
    links_table,
    points_table,
    steps_table,
    turn_table,
)
from samovar.workload.report_figures import COLOURS, GREY, plain
from samovar.workload.report_tables import table

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#1c2430;max-width:1180px;margin:24px auto;padding:0 20px}
h1{font-size:24px;margin:0 0 4px} h2{font-size:18px;margin:34px 0 4px} p{color:#5b6472;margin:2px 0 8px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:6px 0 14px}
td,th{padding:3px 18px 3px 0;text-align:right;vertical-align:top} th{color:#5b6472;font-weight:500}
td:first-child,th:first-child,td:last-child,th:last-child{text-align:left} tr+tr td{border-top:1px solid #e8eaee}
.wide{overflow-x:auto} pre{background:#f4f5f7;padding:10px 14px;overflow-x:auto}
"""
_PARTS = (("front end", "front_end_s"), ("queue", "queue_s"), ("load", "load_s"), ("prefill", "prefill_s"),
          ("decode", "decode_s"), ("other ranks", "other_ranks_s"))  # fmt: skip
CAUSE_COLOURS = {cause: (*COLOURS, "#c5a880", "#4fb0ae", "#7f8c5c", "#d16ba5", "#6c7bd6", "#a0522d", GREY)[at]
                 for at, cause in enumerate(CAUSES)}  # fmt: skip


def explained_page(parts: Sequence[Simulated], title: str, facts: Sequence[str]) -> str:
    """`facts`: lines about what was simulated."""
    names = [f"{part.point.concurrency} lanes" for part in parts]
    sections = [
        table_html(points_table(parts)),
        figure_html("Time of a turn, mean", turn_figure(names, parts), library=True),
        table_html(turn_table(parts)),
        figure_html("What a turn's time is bound by", causes_figure(names, [part.explained.causes for part in parts])),
        causes_list(),
        table_html(evidence_table(parts)),
        table_html(steps_table(parts)),
    ]
    for name, part in zip(names, parts, strict=True):
        sections.append(figure_html(f"KV blocks over time, {name}", memory_figure(part.run.memory)))
    links = links_table(parts)
    sections += [table_html(links)] if links.rows else []
    return page(title, facts, sections)


def page(title: str, facts: Sequence[str], sections: Sequence[str]) -> str:
    return "\n".join(
        [
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
            f"<meta name='viewport' content='width=device-width'><title>{escape(title)}</title>",
            f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>",
            *(f"<p>{escape(fact)}</p>" for fact in facts),
            *sections,
            "</body></html>",
        ]
    )


def table_html(one: Table) -> str:
    told = f"<p>{escape(one.told)}</p>" if one.told else ""
    return f"<h2>{escape(one.title)}</h2>{told}{table(one.head, one.rows)}"


def figure_html(title: str, figure: go.Figure, *, library: bool = False) -> str:
    """`library`: this one brings plotly.js with it, for all."""
    drawn = figure.to_html(
        full_html=False, include_plotlyjs=library, config={"displayModeBar": False, "responsive": True}
    )
    return f"<h2>{escape(title)}</h2>{drawn}"


def causes_list() -> str:
    return "<p>" + "; ".join(f"<b>{escape(name)}</b>: {escape(told)}" for name, told in CAUSES.items()) + ".</p>"


def turn_figure(names: Sequence[str], parts: Sequence[Simulated]) -> go.Figure:
    figure = plain("", "seconds")
    for at, (name, field) in enumerate(_PARTS):
        values = [getattr(part.explained.turn, field) for part in parts]
        figure.add_bar(x=names, y=values, name=name, marker={"color": COLOURS[at % len(COLOURS)]})
    figure.update_layout(barmode="stack")
    figure.update_xaxes(type="category")
    return figure


def causes_figure(names: Sequence[str], causes: Sequence[dict[str, float]]) -> go.Figure:
    figure = plain("", "share of a turn's time")
    for cause, shade in CAUSE_COLOURS.items():
        values = [found.get(cause, 0.0) for found in causes]
        if any(values):
            figure.add_bar(x=names, y=values, name=cause, marker={"color": shade}, hovertemplate="%{y:.1%} %{x}")
    figure.update_layout(barmode="stack")
    figure.update_xaxes(type="category")
    figure.update_yaxes(tickformat=".0%", range=[0, 1])
    return figure


def memory_figure(memory: Sequence[MemorySample]) -> go.Figure:
    """All ranks together."""
    times = sorted({sample.time_s for sample in memory})
    sums: dict[float, list[int]] = {time_s: [0, 0, 0, 0, 0] for time_s in times}
    for sample in memory:
        counts = (sample.used_blocks, sample.cached_blocks, sample.free_blocks, sample.running, sample.waiting)
        sums[sample.time_s] = [old + new for old, new in zip(sums[sample.time_s], counts, strict=True)]
    figure = plain("seconds", "blocks")
    for at, (name, shade) in enumerate((("used by requests", COLOURS[0]), ("cached", "#9fc3e8"), ("free", "#e8eaee"))):
        figure.add_scatter(
            x=times, y=[sums[time_s][at] for time_s in times], name=name, mode="lines", stackgroup="kv",
            line={"width": 0.5, "color": shade},
        )  # fmt: skip
    for at, (name, dash) in enumerate((("running", "solid"), ("waiting", "dot")), 3):
        figure.add_scatter(
            x=times, y=[sums[time_s][at] for time_s in times], name=name, mode="lines", yaxis="y2",
            line={"color": COLOURS[at % len(COLOURS)], "dash": dash},
        )  # fmt: skip
    figure.update_layout(yaxis2={"overlaying": "y", "side": "right", "title": "requests", "rangemode": "tozero"})
    figure.update_yaxes(rangemode="tozero")
    return figure
