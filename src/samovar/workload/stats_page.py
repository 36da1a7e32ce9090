"""The statistics as one HTML file that needs nothing else."""

from __future__ import annotations

from html import escape
from pathlib import Path

import plotly.graph_objects as go

from samovar.base.errors import ConfigError
from samovar.workload.quantities import bytes_text, tokens_text
from samovar.workload.stats_rows import CAUSES, Block, at_once_text, stats_blocks
from samovar.workload.stats_types import TraceStats

BLUE, ORANGE, GREEN, GREY = "#2563a8", "#d9822b", "#3a8a55", "#8a8f98"
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#1c2430;max-width:1180px;margin:24px auto;padding:0 20px}
h1{font-size:24px;margin:0 0 4px} h2{font-size:17px;margin:28px 0 6px} p{color:#5b6472;margin:2px 0 8px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{padding:3px 10px 3px 0;text-align:right;white-space:nowrap}
td:first-child,th:first-child{text-align:left;white-space:pre} th{color:#5b6472;font-weight:500}
tr+tr td{border-top:1px solid #e8eaee} .two{display:grid;grid-template-columns:1fr 1fr;gap:8px 24px}
"""


def stats_page(stats: TraceStats, title: str) -> str:
    blocks = stats_blocks(stats)
    charts = [_miss_chart(stats), _warm_chart(stats), _capacity_chart(stats)]  # the first one brings the library
    drawn = [
        chart.to_html(full_html=False, include_plotlyjs=at == 0, config={"displaylogo": False, "responsive": True})
        for at, chart in enumerate(charts)
    ]
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<meta name='viewport' content='width=device-width'><title>{escape(title)}</title>",
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>",
        "<div class='two'>",
        *(f"<div>{_table(block)}</div>" for block in blocks[:2]),
        f"<div>{_table(blocks[2])}</div><div>{_table(blocks[3])}</div></div>",
        drawn[0],
        "<h2>How long to keep blocks, how much to hold</h2>",
        drawn[1],
        drawn[2],
        "<div class='two'>",
        *(f"<div>{_table(block)}</div>" for block in blocks[4:]),
        "</div>",
        "".join(f"<p>skipped: {escape(reason)}</p>" for reason in stats.skipped),
        "</body></html>",
    ]
    return "\n".join(parts)


def write_page(page: str, path: Path) -> None:
    """Raises ConfigError when the file cannot be written."""
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from None


def _table(block: Block) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in block.columns) if any(block.columns) else ""
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in block.rows)
    text = f"<p>{escape(block.help)}</p>" if block.help else ""
    return f"<h2>{escape(block.title)}</h2>{text}<table><tr>{head}</tr>{rows}</table>"


def _figure(title: str, x_title: str, y_title: str = "share of prompt tokens hit") -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        title={"text": title, "font": {"size": 16}},
        template="plotly_white",
        height=380,
        margin={"l": 70, "r": 30, "t": 50, "b": 60},
        legend={"orientation": "h", "y": 1.08, "x": 1, "xanchor": "right"},
        hovermode="x unified",
    )
    figure.update_xaxes(title=x_title)
    figure.update_yaxes(title=y_title)
    return figure


def _ceiling(figure: go.Figure, stats: TraceStats) -> None:
    text = f"ceiling {100 * stats.ceiling.tokens:.1f}%"
    figure.add_hline(
        stats.ceiling.tokens, line={"color": GREY, "dash": "dot"}, annotation_text=text, annotation_position="top left"
    )
    figure.update_yaxes(tickformat=".0%", range=[0, 1.02])


def _warm_chart(stats: TraceStats) -> go.Figure:
    warm = stats.keep_warm
    figure = _figure("Hit rate if a block survives for some time after its last use", "seconds")
    figure.add_scatter(x=warm.survive_s, y=warm.hit, mode="lines+markers", line={"color": BLUE}, name="kept that long")
    ticks = [1, 10, 60, 300, 1800, 7200, 43200]
    words = ["1 s", "10 s", "1 min", "5 min", "30 min", "2 h", "12 h"]
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=words, title="time a block survives")
    _ceiling(figure, stats)
    figure.update_layout(showlegend=False)
    return figure


def _capacity_chart(stats: TraceStats) -> go.Figure:
    curve = stats.capacity
    figure = _figure(f"Hit rate by KV capacity: {at_once_text(stats)}", "KV capacity")
    sizes = [f"{tokens_text(t)} tokens, {bytes_text(b)}" for t, b in zip(curve.tokens, curve.bytes, strict=True)]
    for name, values, colour in (("LRU", curve.lru, BLUE), ("knows the future", curve.optimal, ORANGE)):
        figure.add_scatter(
            x=curve.tokens, y=values, mode="lines+markers", line={"color": colour}, name=name, text=sizes,
            hovertemplate="%{y:.1%} at %{text}",
        )  # fmt: skip
    shown = range(0, len(curve.tokens), max(1, len(curve.tokens) // 8))
    figure.update_xaxes(
        type="log",
        tickvals=[curve.tokens[at] for at in shown],
        ticktext=[f"{tokens_text(curve.tokens[at])}<br>{bytes_text(curve.bytes[at])}" for at in shown],
        title=f"KV capacity: tokens, and bytes of {stats.kv.name}",
    )
    _ceiling(figure, stats)
    return figure


def _miss_chart(stats: TraceStats) -> go.Figure:
    figure = _figure("Tokens that even an infinite cache has to compute", "share of all such tokens", "")
    names = [CAUSES[miss.cause] for miss in stats.misses]
    figure.add_bar(
        x=[miss.share for miss in stats.misses],
        y=names,
        orientation="h",
        marker={"color": GREEN},
        text=[f"{100 * miss.share:.1f}% ({tokens_text(miss.tokens)} tokens)" for miss in stats.misses],
        textposition="auto",
    )
    figure.update_xaxes(tickformat=".0%")
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(height=300, showlegend=False, hovermode="closest")
    return figure
