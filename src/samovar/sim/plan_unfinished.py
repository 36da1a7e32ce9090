"""A plan that was stopped before its end, by Ctrl-C or a fault: what the simulations say that had ended. There is no
recommendation, since what was not tried may be better."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from samovar.sim.plan_choose import best_of, on_frontier
from samovar.sim.plan_figures import frontier_figure
from samovar.sim.plan_setup import Hardware
from samovar.sim.plan_tables import frontier_table, points_table
from samovar.sim.plan_trial import Trial
from samovar.sim.report_page import figure_html, page, table_html
from samovar.sim.report_tables import Table


@dataclass(frozen=True, slots=True)
class Unfinished:
    trials: tuple[Trial, ...]
    """In the order first wanted."""
    planned: int
    """About how many there would have been in all."""
    frontier: tuple[Trial, ...]
    """Slowest answers first."""
    best: tuple[Trial, ...]
    """At each load of which any has ended."""
    why: str
    """What stopped it."""

    @property
    def told(self) -> str:
        return f"{self.why} after {len(self.trials)} of about {self.planned} simulations"


def unfinished(trials: Iterable[Trial], planned: int, slo: Mapping[str, float], why: str) -> Unfinished:
    found = tuple(trials)
    loads = sorted({trial.job.concurrency for trial in found})
    return Unfinished(
        trials=found,
        planned=max(planned, len(found)),
        frontier=tuple(on_frontier(found)),
        best=tuple(best_of([trial for trial in found if trial.job.concurrency == load], slo) for load in loads),
        why=why,
    )


def unfinished_tables(hardware: Hardware, part: Unfinished, slo: Mapping[str, float]) -> list[Table]:
    """The same for the terminal and the page."""
    title = "The best configuration at each load so far"
    return [points_table(hardware, part.best, slo, title), frontier_table(hardware, part.frontier, slo)]


def unfinished_page(hardware: Hardware, part: Unfinished, slo: Mapping[str, float], facts: Sequence[str]) -> str:
    figure = frontier_figure(hardware, part.trials, slo)
    sections = [
        f"<h2>Not finished: {part.told}</h2>",
        "<p>What was not tried may be better. The same command with this folder goes on from here.</p>",
        figure_html("Frontier so far", figure, library=True),
        *(table_html(one) for one in unfinished_tables(hardware, part, slo)),
    ]
    title = f"Plan, not finished: {hardware.model.name} on {hardware.gpus} x {hardware.device.name}"
    return page(title, facts, sections)
