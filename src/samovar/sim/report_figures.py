"""The pictures of a simulation: where turns spend their time, what bounds them, who holds the KV over time."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from samovar.sim.outcome import MemorySample
from samovar.sim.report_limits import CAUSES
from samovar.sim.report_tables import Simulated
from samovar.workload.report_figures import COLOURS, GREY, plain

ROW = 34
"""Pixels of a bar."""
_PARTS = (("front end", "front_end_s"), ("queue", "queue_s"), ("load", "load_s"), ("prefill", "prefill_s"),
          ("decode", "decode_s"), ("other ranks", "other_ranks_s"))  # fmt: skip
CAUSE_COLOURS = {cause: (*COLOURS, "#c5a880", "#4fb0ae", "#7f8c5c", "#d16ba5", "#6c7bd6", "#a0522d", GREY)[at]
                 for at, cause in enumerate(CAUSES)}  # fmt: skip


def turn_figure(names: Sequence[str], parts: Sequence[Simulated]) -> go.Figure:
    figure = _bars("seconds of a mean turn", len(names))
    for at, (name, field) in enumerate(_PARTS):
        values = [getattr(part.explained.turn, field) for part in parts]
        if any(values):
            figure.add_bar(
                y=names, x=values, name=name, orientation="h", marker={"color": COLOURS[at % len(COLOURS)]},
                hovertemplate="%{y}: %{x:.3g} s",
            )  # fmt: skip
    return figure


def causes_figure(names: Sequence[str], causes: Sequence[dict[str, float]]) -> go.Figure:
    figure = _bars("share of a turn's time", len(names))
    for cause, shade in CAUSE_COLOURS.items():
        values = [found.get(cause, 0.0) for found in causes]
        if any(values):
            figure.add_bar(
                y=names, x=values, name=cause, orientation="h", marker={"color": shade},
                hovertemplate="%{y}: %{x:.1%}",
            )  # fmt: skip
    figure.update_xaxes(tickformat=".0%", range=[0, 1])
    return figure


def memory_figure(memory: Sequence[MemorySample]) -> go.Figure:
    """All ranks together."""
    times = sorted({sample.time_s for sample in memory})
    sums: dict[float, list[int]] = {time_s: [0, 0, 0, 0, 0] for time_s in times}
    for sample in memory:
        counts = (sample.used_blocks, sample.cached_blocks, sample.free_blocks, sample.running, sample.waiting)
        sums[sample.time_s] = [old + new for old, new in zip(sums[sample.time_s], counts, strict=True)]
    figure = plain("seconds since the measured part began", "KV blocks of all ranks")
    for at, (name, shade) in enumerate((("used by requests", COLOURS[0]), ("cached", "#9fc3e8"), ("free", "#e8eaee"))):
        figure.add_scatter(
            x=times, y=[sums[time_s][at] for time_s in times], name=name, mode="lines", stackgroup="kv",
            line={"width": 0.5, "color": shade},
        )  # fmt: skip
    for at, (name, dash) in enumerate((("running", "solid"), ("waiting", "dot")), 3):
        figure.add_scatter(
            x=times, y=[sums[time_s][at] for time_s in times], name=name, mode="lines", yaxis="y2",
            line={"color": COLOURS[at % len(COLOURS)], "dash": dash, "shape": "hv"},
        )  # fmt: skip
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(
        yaxis2={"overlaying": "y", "side": "right", "title": "requests of all ranks", "rangemode": "tozero",
                "showgrid": False, "tickmode": "auto", "nticks": 6},
        margin={"r": 70},
    )  # fmt: skip
    return figure


def _bars(title: str, count: int) -> go.Figure:
    """Stacked, one below the other, the first one on top."""
    figure = plain(title, "", height=150 + ROW * count)
    figure.update_layout(barmode="stack", legend={"traceorder": "normal"})
    figure.update_yaxes(type="category", autorange="reversed", automargin=True)
    return figure
