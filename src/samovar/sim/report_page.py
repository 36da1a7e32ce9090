"""The page that explains a simulation, and what such pages are made of."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from samovar.sim.report_figures import causes_figure, memory_figure, turn_figure
from samovar.sim.report_limits import CAUSES
from samovar.sim.report_tables import (
    Simulated,
    Table,
    evidence_table,
    lanes_text,
    links_table,
    points_table,
    steps_table,
    turn_table,
)
from samovar.workload.report_tables import table

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#1c2430;max-width:1180px;margin:24px auto;padding:0 20px}
h1{font-size:24px;margin:0 0 4px} h2{font-size:18px;margin:34px 0 4px} p{color:#5b6472;margin:2px 0 8px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:6px 0 14px}
td,th{padding:3px 18px 3px 0;text-align:right;vertical-align:top} th{color:#5b6472;font-weight:500}
tr+tr td{border-top:1px solid #e8eaee} td:last-child{min-width:24em}
td:nth-child(n+3):not(:last-child){white-space:nowrap}
td:first-child,th:first-child,td:last-child,th:last-child{text-align:left}
.words2 td:nth-child(2),.words2 th:nth-child(2),.words3 td:nth-child(-n+3),.words3 th:nth-child(-n+3){text-align:left}
.numbers td:last-child,.numbers th:last-child{text-align:right;min-width:0}
.wide{overflow-x:auto} pre{background:#f4f5f7;padding:10px 14px;white-space:pre-wrap;overflow-wrap:anywhere}
"""


def explained_page(parts: Sequence[Simulated], title: str, facts: Sequence[str]) -> str:
    """`facts`: lines about what was simulated."""
    names = [lanes_text(part.point.concurrency) for part in parts]
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
    kind = f"words{one.left}" + ("" if one.ends_in_words else " numbers")
    return f"<div class='{kind}'><h2>{escape(one.title)}</h2>{told}{table(one.head, one.rows)}</div>"


def figure_html(title: str, figure: go.Figure, *, told: str = "", library: bool = False) -> str:
    """`told`: how to read it. `library`: this one brings plotly.js with it, for all."""
    drawn = figure.to_html(
        full_html=False, include_plotlyjs=library, config={"displayModeBar": False, "responsive": True}
    )
    return f"<h2>{escape(title)}</h2>{f'<p>{escape(told)}</p>' if told else ''}{drawn}"


def causes_list() -> str:
    return "<p>" + "; ".join(f"<b>{escape(name)}</b>: {escape(told)}" for name, told in CAUSES.items()) + ".</p>"
