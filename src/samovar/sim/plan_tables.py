"""A plan in tables of text: the same for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samovar.sim.layouts import Refused, layout_name
from samovar.sim.plan_changes import LAYOUT
from samovar.sim.plan_choose import attained, gain
from samovar.sim.plan_search import Ladder, Plan, Tried
from samovar.sim.plan_setup import Hardware, Setup
from samovar.sim.plan_trial import Trial
from samovar.sim.plan_why import aimed_at, turn_change
from samovar.sim.report_tables import Table, lanes_text, number, seconds, share


def setup_name(hardware: Hardware, setup: Setup) -> str:
    """The layout and every knob that is turned."""
    parts = [layout_name(hardware, setup.layout)]
    if setup.prefill_schedule_interval > 1:
        parts.append(f"interval {setup.prefill_schedule_interval}")
    if setup.long_prefill_token_threshold:
        parts.append(f"chunks {setup.long_prefill_token_threshold:,}")
    if setup.max_num_batched_tokens != 8192:
        parts.append(f"steps {setup.max_num_batched_tokens:,}")
    if setup.max_num_seqs != 256:
        parts.append(f"{setup.max_num_seqs} slots")
    if setup.acceptance.drafts:
        parts.append(f"{setup.acceptance.drafts} drafts")
    if setup.tiers is not None:
        parts.append("tiers")
    if setup.retention_policy != "lru":
        parts.append(setup.retention_policy)
    return ", ".join(parts)


def told_of(hardware: Hardware, trial: Trial) -> str:
    """One short line."""
    point = trial.point
    return (
        f"{lanes_text(trial.job.concurrency)}, {setup_name(hardware, trial.job.setup)}: "
        f"{number(point.tokens_per_gpu_s, 0)} tok/s/GPU at {number(point.p90_interactivity)} tok/s (P90)"
    )


def plan_tables(hardware: Hardware, plan: Plan, slo: Mapping[str, float], refused: Sequence[Refused]) -> list[Table]:
    tables = [
        _best(hardware, plan, slo),
        alone_table(plan),
        *(_together(hardware, ladder) for ladder in plan.ladders),
        frontier_table(hardware, plan.frontier, slo),
        _refused(refused, plan),
    ]
    return [table for table in tables if table.rows]


def _best(hardware: Hardware, plan: Plan, slo: Mapping[str, float]) -> Table:
    rows = [
        (
            str(ladder.concurrency),
            setup_name(hardware, ladder.best.job.setup),
            *_figures(ladder.best, slo),
            percent(gain(ladder.best.point.tokens_per_gpu_s, ladder.baseline.point.tokens_per_gpu_s)),
            ladder.best.why,
        )
        for ladder in plan.ladders
    ]
    head = ("lanes", "configuration", *_FIGURES, "gain", "bound by")
    return Table("The best configuration at each load", head, tuple(rows), _baseline(hardware, plan), left=2)


def _baseline(hardware: Hardware, plan: Plan) -> str:
    name = setup_name(hardware, plan.ladders[0].baseline.job.setup)
    return f"gain: tokens per second and GPU over the baseline, {name}"


def points_table(hardware: Hardware, trials: Sequence[Trial], slo: Mapping[str, float], title: str) -> Table:
    rows = [
        (str(one.job.concurrency), setup_name(hardware, one.job.setup), *_figures(one, slo), one.why) for one in trials
    ]
    return Table(title, ("lanes", "configuration", *_FIGURES, "bound by"), tuple(rows), left=2)


def alone_table(plan: Plan) -> Table:
    """None fits all: a change that pays at one load costs at another."""
    head = ("alone, on the baseline", *(lanes_text(ladder.concurrency) for ladder in plan.ladders))
    names = [one.name for one in plan.ladders[0].alone]
    rows = [(name, *(versus(ladder.alone[at]) or "–" for ladder in plan.ladders)) for at, name in enumerate(names)]
    told = "change of tokens per second and GPU / of P90 interactivity"
    return Table("What each optimisation contributes alone", head, tuple(rows), told)


def why_table(ladder: Ladder) -> Table:
    """Every optimisation at one load: what it is for, what it brings alone and beside the others, and through which
    part of a turn's time."""
    together = {one.name: one for one in ladder.together}
    rows = [_why_row(one, together.pop(one.name, None), ladder) for one in ladder.alone]
    rows += [_why_row(None, one, ladder) for one in together.values()]
    head = ("optimisation", "is to shorten", "alone", "with what was kept", "a turn, seconds")
    told = (
        "is to shorten: causes, with their shares of a turn on the baseline. alone, with what was kept: change of "
        "tokens per second and GPU / of P90 interactivity. a turn: mean seconds, before → after, and the parts that "
        "change most"
    )
    return Table(f"Why, {lanes_text(ladder.concurrency)}", head, tuple(rows), told, left=2)


def _why_row(alone: Tried | None, together: Tried | None, ladder: Ladder) -> tuple[str, ...]:
    """What it did on top of the others counts, where that was tried."""
    shown = [one for one in (together, alone) if one is not None]
    judged = next((one for one in shown if one.trial is not None), shown[0])
    if judged.trial is None or judged.over is None:
        told = f"not to be had: {judged.reason}"
    else:
        told = _changed(judged)
        if together is not None and together.trial is None:
            told += f"; with what was kept: {together.reason}"
    beside = "–" if together is None else versus(together) or "not to be had"
    return (
        judged.name,
        aimed_at(judged.aims, ladder.baseline),
        "–" if alone is None else versus(alone) or "not to be had",
        f"{beside}, kept" if together is not None and together.kept else beside,
        told,
    )


def _together(hardware: Hardware, ladder: Ladder) -> Table:
    rows = [(*_row("baseline", ladder.baseline), "", "", ladder.baseline.explained.verdict)]
    for one in ladder.together:
        if one.trial is None:
            rows.append((one.name, *["–"] * 5, "not tried", one.reason))
        else:
            rows.append((*_row(one.name, one.trial), versus(one), "kept" if one.kept else "", _changed(one)))
    head = ("added", "P90 tok/s", "tok/s/GPU", "TTFT P90", "turn P90", "over what was kept", "", "a turn, seconds")
    title = f"Together, {lanes_text(ladder.concurrency)}: {setup_name(hardware, ladder.best.job.setup)}"
    return Table(title, head, tuple(rows), left=1)


def _changed(one: Tried) -> str:
    if one.trial is None or one.over is None:
        return ""
    modes = [trial.job.setup.layout.mode for trial in (one.over, one.trial)]
    lost = "without mono decode, " if modes[0] == "mono" and one.axis == LAYOUT and modes[1] != "mono" else ""
    return lost + turn_change(one.trial, one.over)


def _row(name: str, trial: Trial) -> tuple[str, ...]:
    point = trial.point
    return (
        name,
        number(point.p90_interactivity),
        number(point.tokens_per_gpu_s, 0),
        seconds(point.ttft_s.p90),
        seconds(point.latency_s.p90),
    )


def frontier_table(hardware: Hardware, frontier: Sequence[Trial], slo: Mapping[str, float]) -> Table:
    rows = [
        (
            setup_name(hardware, trial.job.setup),
            str(trial.job.concurrency),
            *_figures(trial, slo),
            _costs(trial),
            trial.explained.verdict,
        )
        for trial in frontier
    ]
    head = ("configuration", "lanes", *_FIGURES, "$/M tokens own, rent", "bound by")
    return Table("Frontier", head, tuple(rows), "no other point is better in both P90 tok/s and tok/s/GPU")


def _refused(refused: Sequence[Refused], plan: Plan) -> Table:
    loads: dict[tuple[str, str], list[int]] = {(one.name, one.reason): [] for one in refused}
    for ladder in plan.ladders:
        for one in ladder.alone:
            if one.trial is None:
                loads.setdefault((one.name, one.reason), []).append(ladder.concurrency)
    # What never fits was not asked for at any load.
    rows = [
        (name, ", ".join(map(str, lanes)) if lanes else "any", reason)
        for (name, reason), lanes in sorted(loads.items())
    ]
    return Table("Not to be had", ("configuration", "lanes", "why"), tuple(rows), left=3)


_FIGURES = ("P90 tok/s", "tok/s/GPU", "TTFT P90", "hit", "ceiling", "KV used", "SLO")


def _figures(trial: Trial, slo: Mapping[str, float]) -> tuple[str, ...]:
    point = trial.point
    return (
        number(point.p90_interactivity),
        number(point.tokens_per_gpu_s, 0),
        seconds(point.ttft_s.p90),
        share(point.hit_rate),
        share(point.hit_ceiling),
        share(trial.explained.kv_used_share),
        "" if not slo else "met" if attained(point, slo) >= 1 else f"{100 * attained(point, slo):.0f}%",
    )


def _costs(trial: Trial) -> str:
    return ", ".join(
        f"{cost.per_million_tokens:.4f}" for cost in trial.point.costs if cost.per_million_tokens is not None
    )


def versus(one: Tried) -> str:
    """`+24% / -3%`; "" when it could not be had."""
    if one.trial is None or one.over is None:
        return ""
    new, old = one.trial.point, one.over.point
    return (
        f"{percent(gain(new.tokens_per_gpu_s, old.tokens_per_gpu_s))} / "
        f"{percent(gain(new.p90_interactivity, old.p90_interactivity))}"
    )


def percent(value: float) -> str:
    return f"{100 * value:+.0f}%" if abs(value) >= 0.005 else "0%"


def kept(tried: Sequence[Tried]) -> list[Tried]:
    return [one for one in tried if one.kept and one.trial is not None]
