"""A plan as one HTML file that needs nothing else: the frontier, what each optimisation brings at each load, why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from samovar.sim.layouts import Refused
from samovar.sim.plan_choose import gain
from samovar.sim.plan_figures import alone_figure, bounds_figure, frontier_figure, waterfall_figure
from samovar.sim.plan_search import Ladder, Plan
from samovar.sim.plan_setup import Hardware
from samovar.sim.plan_tables import kept, percent, plan_tables, setup_name, why_table
from samovar.sim.report_page import causes_list, figure_html, page, table_html
from samovar.sim.report_tables import lanes_text


def plan_page(
    hardware: Hardware,
    plan: Plan,
    slo: Mapping[str, float],
    refused: Sequence[Refused],
    facts: Sequence[str],
    flags: Mapping[str, str],
) -> str:
    """`flags`: command lines of the recommended configuration, by program."""
    frontier = frontier_figure(hardware, plan.trials, slo, plan.recommended)
    sections = [
        f"<h2>{escape(headline(hardware, plan, slo))}</h2>",
        f"<p>{escape(plan.recommended.why)}</p>",
        *(f"<p>{escape(name)}</p><pre>{escape(words)}</pre>" for name, words in flags.items()),
        figure_html("Frontier: everything that was tried", frontier, library=True),
        figure_html("None fits all: what each optimisation brings alone, by load", alone_figure(plan), told=_ALONE),
        *(part for ladder in plan.ladders for part in _of_load(hardware, ladder)),
        figure_html(
            "What a turn's time is bound by, on the baseline and with the best of each load", bounds_figure(plan)
        ),
        causes_list(),
        *(table_html(one) for one in plan_tables(hardware, plan, slo, refused)),
    ]
    return page(f"Plan: {hardware.model.name} on {hardware.gpus} x {hardware.device.name}", facts, sections)


_ALONE = (
    "Each on the baseline, nothing else changed: tokens per second and GPU, and P90 interactivity behind the stroke. "
    "Green pays at that load, red costs."
)
_WATERFALL = (
    "From the baseline to the best configuration found: each bar is an optimisation that was kept, on top of those "
    "above it. The order matters: what one has won, the next cannot win again. "
    "One that brings nothing was kept for the sake of the SLO, or of speed at the same rate."
)


def _of_load(hardware: Hardware, ladder: Ladder) -> list[str]:
    steps, told = kept(ladder.together), _WATERFALL
    if not steps:
        told = "Nothing that was tried is better than the baseline at this load."
    return [
        figure_html(_from_to(hardware, ladder), waterfall_figure(hardware, ladder), told=told),
        table_html(why_table(ladder)),
    ]


def _from_to(hardware: Hardware, ladder: Ladder) -> str:
    old, new = ladder.baseline, ladder.best
    name = setup_name(hardware, old.job.setup)
    if new is old:
        return f"{lanes_text(ladder.concurrency)}: {name}, the baseline"
    more = percent(gain(new.point.tokens_per_gpu_s, old.point.tokens_per_gpu_s))
    return f"{lanes_text(ladder.concurrency)}: {more} from {name} to {setup_name(hardware, new.job.setup)}"


def headline(hardware: Hardware, plan: Plan, slo: Mapping[str, float]) -> str:
    trial = plan.recommended
    name = setup_name(hardware, trial.job.setup)
    figures = (
        f"{trial.point.tokens_per_gpu_s:,.0f} tokens/s and GPU at {trial.point.p90_interactivity or 0:.1f} tokens/s "
        f"(P90), {lanes_text(trial.job.concurrency)}"
    )
    if plan.meets_slo:
        return f"Recommended: {name}: {figures}"
    wanted = ", ".join(f"p90_{key}={value:g}" for key, value in slo.items())
    return f"Nothing tried meets {wanted}; nearest: {name}: {figures}"
