"""A plan's pictures. Names are long, so they stand beside horizontal bars, where a narrow page has room for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

import plotly.graph_objects as go

from samovar.sim.plan_choose import gain, on_frontier
from samovar.sim.plan_search import Ladder, Plan, Tried
from samovar.sim.plan_setup import Hardware
from samovar.sim.plan_tables import kept, percent, setup_name, versus
from samovar.sim.plan_trial import Trial
from samovar.sim.plan_why import turn_change
from samovar.sim.report_figures import causes_figure
from samovar.sim.report_tables import lanes_text
from samovar.workload.report_figures import BROKEN, COLOURS, GREY, colour, plain

ROW = 30
"""Pixels of a row of bars or cells."""
STRONG = 0.5
"""A gain or loss of such a share has the full colour."""
_TICKS = [digit * 10**power for power in range(-1, 7) for digit in (1, 2, 5)]
_PAYS, _COSTS = "#3a8a55", "#c0504d"


def frontier_figure(
    hardware: Hardware, trials: Sequence[Trial], slo: Mapping[str, float], chosen: Trial | None = None
) -> go.Figure:
    """Every trial, by layout, with the frontier of all. `chosen`: the recommended one."""
    figure = plain("P90 interactivity, tokens/s", "tokens per second and GPU", height=560)
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(setup_name(hardware, trial.job.setup).split(",")[0], []).append(trial)
    for at, (name, members) in enumerate(groups.items()):
        figure.add_scatter(
            x=[t.point.p90_interactivity for t in members], y=[t.point.tokens_per_gpu_s for t in members],
            mode="markers", name=name, marker={"color": colour(at), "size": 8, "symbol": at % 8},
            text=[_told(hardware, t) for t in members], hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip
    best = on_frontier(trials)
    figure.add_scatter(
        x=[t.point.p90_interactivity for t in best], y=[t.point.tokens_per_gpu_s for t in best],
        mode="lines+text", name="frontier", line={"color": GREY, "width": 2}, hoverinfo="skip",
        text=_named_once([t.job.concurrency for t in best]), textposition="top right",
    )  # fmt: skip
    if chosen is not None:
        figure.add_scatter(
            x=[chosen.point.p90_interactivity], y=[chosen.point.tokens_per_gpu_s], mode="markers", name="recommended",
            marker={"size": 18, "symbol": "circle-open", "line": {"width": 3}, "color": BROKEN}, hoverinfo="skip",
        )  # fmt: skip
    if "interactivity" in slo:
        limit, rates = slo["interactivity"], [t.point.tokens_per_gpu_s for t in trials if t.point.tokens_per_gpu_s]
        figure.add_scatter(
            x=[limit, limit], y=[min(rates, default=1.0), max(rates, default=1.0)], mode="lines",
            name=f"SLO, {limit:g}", line={"color": BROKEN, "dash": "dash"}, hoverinfo="skip",
        )  # fmt: skip
    # One lane and hundreds in one picture: a hundred times apart in both directions.
    figure.update_xaxes(type="log", tickvals=_TICKS)
    figure.update_yaxes(type="log", tickvals=_TICKS)
    return figure


def alone_figure(plan: Plan) -> go.Figure:
    """A row for each optimisation, a column for each load; the cells' colour is the gain in tokens per second."""
    names = [one.name for one in plan.ladders[0].alone]
    figure = plain("", "", height=110 + ROW * len(names))
    columns = [[ladder.alone[at] for ladder in plan.ladders] for at in range(len(names))]
    figure.add_heatmap(
        x=[lanes_text(ladder.concurrency) for ladder in plan.ladders], y=names,
        z=[[_more(one) for one in row] for row in columns],
        text=[[versus(one) or "–" for one in row] for row in columns], texttemplate="%{text}",
        customdata=[[_hover(one) for one in row] for row in columns], hovertemplate="%{customdata}<extra></extra>",
        zmin=-STRONG, zmax=STRONG, colorscale=[[0, _COSTS], [0.5, "#f6f7f9"], [1, _PAYS]], showscale=False,
        xgap=3, ygap=3,
    )  # fmt: skip
    figure.update_xaxes(side="top", showgrid=False)
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False)
    return figure


def waterfall_figure(hardware: Hardware, ladder: Ladder) -> go.Figure:
    """Tokens per second and GPU from the baseline, step by kept step, to the best. One that was kept for the sake of
    the SLO may go down."""
    steps = [(one.name, one.trial) for one in kept(ladder.together) if one.trial is not None]
    rates = [ladder.baseline.point.tokens_per_gpu_s, *(trial.point.tokens_per_gpu_s for _, trial in steps)]
    gains = [f"{percent(gain(new, old))}" for old, new in pairwise(rates)]
    first = f"{setup_name(hardware, ladder.baseline.job.setup)}, the baseline"
    figure = plain("tokens per second and GPU", "", height=120 + ROW * (len(steps) + 2))
    figure.add_waterfall(
        y=[first, *(name for name, _ in steps), "together"],
        x=[rates[0], *(new - old for old, new in pairwise(rates)), 0],
        measure=["absolute", *["relative"] * len(steps), "total"], orientation="h",
        text=[f"{rates[0]:,.0f}", *gains, f"{rates[-1]:,.0f}"], textposition="auto",
        hovertext=[ladder.baseline.why, *(trial.why for _, trial in steps), ladder.best.why], hoverinfo="text",
        connector={"line": {"color": GREY}}, increasing={"marker": {"color": _PAYS}},
        decreasing={"marker": {"color": _COSTS}}, totals={"marker": {"color": COLOURS[0]}},
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", automargin=True, type="category")
    figure.update_xaxes(rangemode="tozero")
    return figure


def bounds_figure(plan: Plan) -> go.Figure:
    names: list[str] = []
    causes: list[dict[str, float]] = []
    for ladder in plan.ladders:
        for what, trial in (("baseline", ladder.baseline), ("best", ladder.best)):
            names.append(f"{lanes_text(ladder.concurrency)}, {what}")
            causes.append(trial.explained.causes)
    return causes_figure(names, causes)


def _named_once(loads: Sequence[int]) -> list[str]:
    """Each load at its first point, beside a mark."""
    return ["" if load in loads[:at] else f"   {lanes_text(load)}" for at, load in enumerate(loads)]


def _more(one: Tried) -> float:
    """0, which has no colour, for what cannot be had."""
    if one.trial is None or one.over is None:
        return 0.0
    return gain(one.trial.point.tokens_per_gpu_s, one.over.point.tokens_per_gpu_s)


def _hover(one: Tried) -> str:
    if one.trial is None or one.over is None:
        return escape(one.reason)
    return escape(f"{one.name}: a turn takes {turn_change(one.trial, one.over)} s")


def _told(hardware: Hardware, trial: Trial) -> str:
    return (
        f"{escape(setup_name(hardware, trial.job.setup))}<br>{lanes_text(trial.job.concurrency)}<br>"
        f"{trial.point.tokens_per_gpu_s:,.0f} tokens/s and GPU, {trial.point.p90_interactivity or 0:.1f} tokens/s<br>"
        f"{escape(trial.explained.verdict)}"
    )
