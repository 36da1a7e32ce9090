"""A plan as one HTML file that needs nothing else: the frontier, what each optimisation brings at each load, why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

import plotly.graph_objects as go

from samovar.sim.layouts import Refused
from samovar.sim.plan_choose import gain, on_frontier
from samovar.sim.plan_search import Ladder, Plan
from samovar.sim.plan_setup import Hardware
from samovar.sim.plan_tables import kept, plan_tables, setup_name
from samovar.sim.plan_trial import Trial
from samovar.sim.report_page import causes_figure, causes_list, figure_html, page, table_html
from samovar.workload.report_figures import BROKEN, GREY, colour, plain


def plan_page(
    hardware: Hardware,
    plan: Plan,
    slo: Mapping[str, float],
    refused: Sequence[Refused],
    facts: Sequence[str],
    flags: Mapping[str, str],
) -> str:
    """`flags`: command lines of the recommended configuration, by program."""
    sections = [
        f"<h2>{escape(headline(hardware, plan, slo))}</h2>",
        *(f"<p>{escape(name)}</p><pre>{escape(words)}</pre>" for name, words in flags.items()),
        figure_html("Frontier", frontier_figure(hardware, plan, slo), library=True),
        figure_html("What each optimisation brings alone, by load", alone_figure(plan)),
        *(figure_html(f"Together, {one.concurrency} lanes", waterfall_figure(one)) for one in plan.ladders),
        figure_html(
            "What a turn's time is bound by, at the baseline and at the best of each load", bounds_figure(plan)
        ),
        causes_list(),
        *(table_html(one) for one in plan_tables(hardware, plan, slo, refused)),
    ]
    return page(f"Plan: {hardware.model.name} on {hardware.gpus} x {hardware.device.name}", facts, sections)


def headline(hardware: Hardware, plan: Plan, slo: Mapping[str, float]) -> str:
    trial = plan.recommended
    name = setup_name(hardware, trial.job.setup)
    figures = (
        f"{trial.point.tokens_per_gpu_s:,.0f} tokens/s and GPU at {trial.point.p90_interactivity or 0:.1f} tokens/s "
        f"(P90), {trial.job.concurrency} lanes"
    )
    if plan.meets_slo:
        return f"Recommended: {name}: {figures}"
    wanted = ", ".join(f"p90_{key}={value:g}" for key, value in slo.items())
    return f"Nothing tried meets {wanted}; nearest: {name}: {figures}"


def frontier_figure(hardware: Hardware, plan: Plan, slo: Mapping[str, float]) -> go.Figure:
    """Every trial, by layout, with the frontier of each and of all."""
    figure = plain("P90 interactivity, tokens/s", "tokens per second and GPU", height=480)
    groups: dict[str, list[Trial]] = {}
    for trial in plan.trials:
        groups.setdefault(setup_name(hardware, trial.job.setup).split(",")[0], []).append(trial)
    for at, (name, trials) in enumerate(groups.items()):
        figure.add_scatter(
            x=[t.point.p90_interactivity for t in trials], y=[t.point.tokens_per_gpu_s for t in trials],
            mode="markers", name=name, marker={"color": colour(at), "size": 8, "symbol": at % 8},
            text=[_told(hardware, t) for t in trials], hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip
    best = on_frontier(plan.trials)
    figure.add_scatter(
        x=[t.point.p90_interactivity for t in best], y=[t.point.tokens_per_gpu_s for t in best],
        mode="lines", name="frontier", line={"color": GREY, "width": 2}, hoverinfo="skip",
    )  # fmt: skip
    chosen = plan.recommended
    figure.add_scatter(
        x=[chosen.point.p90_interactivity], y=[chosen.point.tokens_per_gpu_s], mode="markers", name="recommended",
        marker={"size": 18, "symbol": "circle-open", "line": {"width": 3}, "color": BROKEN}, hoverinfo="skip",
    )  # fmt: skip
    if "interactivity" in slo:
        figure.add_vline(slo["interactivity"], line={"color": BROKEN, "dash": "dash"}, annotation_text="SLO")
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    return figure


def alone_figure(plan: Plan) -> go.Figure:
    """Change of tokens per second and GPU over the baseline."""
    figure = plain("", "tokens per second and GPU, over the baseline", height=420)
    for at, ladder in enumerate(plan.ladders):
        figure.add_bar(
            x=[one.name for one in ladder.alone],
            y=[None if one.trial is None else _more(one.trial, ladder.baseline) for one in ladder.alone],
            name=f"{ladder.concurrency} lanes",
            marker={"color": colour(at)},
        )
    figure.update_yaxes(tickformat="+.0%")
    return figure


def waterfall_figure(ladder: Ladder) -> go.Figure:
    """Tokens per second and GPU from the baseline, step by kept step, to the best. One that was kept for the sake of
    the SLO may go down."""
    steps = kept(ladder.together)
    rates = [ladder.baseline.point.tokens_per_gpu_s]
    rates += [one.trial.point.tokens_per_gpu_s for one in steps if one.trial is not None]
    figure = plain("", "tokens per second and GPU", height=340)
    figure.add_waterfall(
        x=["baseline", *(one.name for one in steps), "together"],
        y=[rates[0], *(new - old for old, new in pairwise(rates)), 0],
        measure=["absolute", *["relative"] * len(steps), "total"],
        connector={"line": {"color": GREY}},
    )
    return figure


def bounds_figure(plan: Plan) -> go.Figure:
    names: list[str] = []
    causes: list[dict[str, float]] = []
    for ladder in plan.ladders:
        for what, trial in (("baseline", ladder.baseline), ("best", ladder.best)):
            names.append(f"{ladder.concurrency} lanes, {what}")
            causes.append(trial.explained.causes)
    return causes_figure(names, causes)


def _more(trial: Trial, base: Trial) -> float:
    return gain(trial.point.tokens_per_gpu_s, base.point.tokens_per_gpu_s)


def _told(hardware: Hardware, trial: Trial) -> str:
    return (
        f"{escape(setup_name(hardware, trial.job.setup))}<br>{trial.job.concurrency} lanes<br>"
        f"{trial.point.tokens_per_gpu_s:,.0f} tokens/s and GPU, {trial.point.p90_interactivity or 0:.1f} tokens/s<br>"
        f"{escape(trial.explained.verdict)}"
    )
