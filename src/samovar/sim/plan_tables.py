"""A plan in tables of text: the same for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samovar.sim.layouts import Refused, layout_name
from samovar.sim.plan_choose import attained, gain
from samovar.sim.plan_search import Ladder, Plan, Tried
from samovar.sim.plan_setup import Hardware, Setup
from samovar.sim.plan_trial import Trial
from samovar.sim.report_tables import Table, number, seconds, share


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


def plan_tables(hardware: Hardware, plan: Plan, slo: Mapping[str, float], refused: Sequence[Refused]) -> list[Table]:
    tables = [
        _best(hardware, plan, slo),
        _alone(plan),
        *(_together(hardware, ladder) for ladder in plan.ladders),
        _frontier(hardware, plan, slo),
        _refused(refused, plan),
    ]
    return [table for table in tables if table.rows]


def _best(hardware: Hardware, plan: Plan, slo: Mapping[str, float]) -> Table:
    rows = [
        (
            str(ladder.concurrency),
            setup_name(hardware, ladder.best.job.setup),
            *_figures(ladder.best, slo),
            _percent(gain(ladder.best.point.tokens_per_gpu_s, ladder.baseline.point.tokens_per_gpu_s)),
            ladder.best.why,
        )
        for ladder in plan.ladders
    ]
    head = ("lanes", "configuration", *_FIGURES, "gain", "bound by")
    return Table("The best configuration at each load", head, tuple(rows), _baseline(hardware, plan), left=2)


def _baseline(hardware: Hardware, plan: Plan) -> str:
    name = setup_name(hardware, plan.ladders[0].baseline.job.setup)
    return f"gain: tokens per second and GPU over the baseline, {name}"


def _alone(plan: Plan) -> Table:
    """None fits all: a change that pays at one load costs at another."""
    head = ("alone, on the baseline", *(f"{ladder.concurrency} lanes" for ladder in plan.ladders))
    names = [one.name for one in plan.ladders[0].alone]
    rows = [(name, *(_alone_cell(ladder, at) for ladder in plan.ladders)) for at, name in enumerate(names)]
    told = "change of tokens per second and GPU / of P90 interactivity"
    return Table("What each optimisation contributes alone", head, tuple(rows), told)


def _alone_cell(ladder: Ladder, at: int) -> str:
    one = ladder.alone[at]
    return "–" if one.trial is None else _both(one.trial, ladder.baseline)


def _together(hardware: Hardware, ladder: Ladder) -> Table:
    rows = [(*_row("baseline", ladder.baseline, ladder.baseline), "", ladder.baseline.explained.verdict)]
    base = ladder.baseline
    for one in ladder.together:
        if one.trial is None:
            rows.append((one.name, *["–"] * 5, "not tried", one.reason))
            continue
        rows.append((*_row(one.name, one.trial, base), "kept" if one.kept else "", one.trial.explained.verdict))
        if one.kept:
            base = one.trial
    head = ("added", "P90 tok/s", "tok/s/GPU", "TTFT P90", "turn P90", "over what was kept", "", "bound by")
    title = f"Together, {ladder.concurrency} lanes: {setup_name(hardware, ladder.best.job.setup)}"
    return Table(title, head, tuple(rows), left=1)


def _row(name: str, trial: Trial, base: Trial) -> tuple[str, ...]:
    point = trial.point
    versus = "" if trial is base else _both(trial, base)
    return (
        name,
        number(point.p90_interactivity),
        number(point.tokens_per_gpu_s, 0),
        seconds(point.ttft_s.p90),
        seconds(point.latency_s.p90),
        versus,
    )


def _frontier(hardware: Hardware, plan: Plan, slo: Mapping[str, float]) -> Table:
    rows = [
        (
            setup_name(hardware, trial.job.setup),
            str(trial.job.concurrency),
            *_figures(trial, slo),
            _costs(trial),
            trial.explained.verdict,
        )
        for trial in plan.frontier
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


def _both(trial: Trial, base: Trial) -> str:
    return (
        f"{_percent(gain(trial.point.tokens_per_gpu_s, base.point.tokens_per_gpu_s))} / "
        f"{_percent(gain(trial.point.p90_interactivity, base.point.p90_interactivity))}"
    )


def _percent(value: float) -> str:
    return f"{100 * value:+.0f}%" if abs(value) >= 0.005 else "0%"


def kept(tried: Sequence[Tried]) -> list[Tried]:
    return [one for one in tried if one.kept and one.trial is not None]
