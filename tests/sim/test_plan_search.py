"""The search on formulas in place of simulations: what it must find, and what it must not do."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from samovar.sim.plan_changes import Offer, menu
from samovar.sim.plan_search import search
from samovar.sim.plan_setup import engine_config
from samovar.sim.plan_trial import Job
from tests.sim.plan_made import FormulaRunner, hardware, setup

HOST = hardware("deepseek-v4-pro", "GB300")
MENU = menu(HOST, setup(), Offer(retention_policy="agent"))


def none_fits_all(job: Job) -> tuple[float, float]:
    """Many lanes want DCP, one wants mono decode, chunks help a little everywhere."""
    one, many = job.setup.layout, job.concurrency > 8
    rate = 100.0 * job.concurrency
    rate *= 1.5 if one.dcp == 8 and many else 0.8 if one.dcp > 1 else 1.0
    rate *= 1.3 if one.mode == "mono" and not many else 1.0
    rate *= 1.1 if job.setup.long_prefill_token_threshold == 512 else 1.0
    return rate, 50.0


def test_each_load_gets_what_it_wants() -> None:
    runner = FormulaRunner(none_fits_all)
    shares: list[tuple[float, int]] = []
    plan = search(runner, HOST, MENU, (1, 64), {}, lambda told: shares.append((told.done, told.planned)))
    few, many = plan.ladders
    assert few.best.job.setup.layout.mode == "mono" and few.best.job.setup.layout.dcp == 1
    assert many.best.job.setup.layout.dcp == 8
    assert all(one.best.job.setup.long_prefill_token_threshold == 512 for one in plan.ladders)
    assert [one.name for one in few.together if one.kept] == ["mono decode", "chunks of 512"]
    assert plan.recommended is many.best and plan.meets_slo
    assert [t.job for t in plan.trials] == runner.ran
    assert len(set(runner.ran)) == len(runner.ran)
    assert shares[-1] == (len(plan.trials), len(plan.trials))
    assert [done for done, _ in shares] == sorted(done for done, _ in shares)


def test_what_does_not_go_with_the_layout_is_named() -> None:
    plan = search(FormulaRunner(none_fits_all), HOST, MENU, (64,), {}, lambda told: None)
    (mono,) = [one for one in plan.ladders[0].together if one.name == "mono decode"]
    assert mono.trial is None and "--monokernel works with tensor parallelism alone" in mono.reason


def test_lanes_that_replicas_cannot_share_are_not_tried() -> None:
    runner = FormulaRunner(none_fits_all)
    plan = search(runner, HOST, MENU, (1,), {}, lambda told: None)
    (halves,) = [one for one in plan.ladders[0].alone if one.name == "2 x TP4"]
    assert halves.trial is None and "cannot share it evenly" in halves.reason


def test_the_slo_decides() -> None:
    def rate(job: Job) -> tuple[float, float]:
        ep = job.setup.layout.ep and job.setup.layout.dp == 8
        return (1000.0, 20.0) if not ep else (400.0, 60.0)

    plan = search(FormulaRunner(rate), HOST, MENU, (16,), {"interactivity": 50}, lambda told: None)
    assert plan.meets_slo and plan.recommended.job.setup.layout.dp == 8
    unmet = search(FormulaRunner(rate), HOST, MENU, (16,), {"interactivity": 90}, lambda told: None)
    assert not unmet.meets_slo and unmet.recommended.job.setup.layout.dp == 8


def test_the_baselines_layout_is_gone_back_to() -> None:
    """DCP is the best alone, and with either of two other knobs; with both of them plain TP is."""

    def rate(job: Job) -> tuple[float, float]:
        layout, chunks = job.setup.layout, job.setup.long_prefill_token_threshold == 512
        cadence = job.setup.prefill_schedule_interval == 8
        both = chunks and cadence and layout == MENU.baseline.layout
        return (110.0 if layout.dcp == 8 else 100.0) * 1.04 ** (chunks + cadence) * (1.3 if both else 1.0), 50.0

    plan = search(FormulaRunner(rate), HOST, menu(HOST, setup(), Offer()), (64,), {}, lambda told: None)
    (ladder,) = plan.ladders
    names = [one.name for one in ladder.together if one.kept]
    assert names[0] == "TP8+DCP8" and names[-1] == "TP8"
    assert ladder.best.job.setup == setup(long_prefill_token_threshold=512, prefill_schedule_interval=8)


def test_a_change_that_only_shows_its_worth_is_never_combined() -> None:
    host = hardware("deepseek-v4-pro", "GB300")
    found = menu(host, setup(), Offer())
    (eager,) = [change for change in found.changes if not change.combines]
    impossible = replace(found, changes=tuple(
        replace(change, apply=lambda one: replace(one, layout=replace(one.layout, tp=3))) if change is eager else change
        for change in found.changes
    ))  # fmt: skip
    for one in (found, impossible):
        plan = search(FormulaRunner(none_fits_all), host, one, (64,), {}, lambda told: None)
        assert eager.name in [tried.name for tried in plan.ladders[0].alone]
        assert eager.name not in [tried.name for tried in plan.ladders[0].together]


def test_what_is_best_alone_is_not_lost() -> None:
    """Eager launches are not combined, yet nothing is recommended that is behind them."""

    def rate(job: Job) -> tuple[float, float]:
        return (500.0 if job.setup.layout.mode == "eager" else 100.0), 50.0

    plan = search(FormulaRunner(rate), HOST, MENU, (16,), {}, lambda told: None)
    (ladder,) = plan.ladders
    assert ladder.best.job.setup.layout.mode == "eager"
    assert ladder.together[-1].name == "eager launches alone, in place of all" and ladder.together[-1].kept


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([(1,), (8, 64), (1, 16, 64)]))
def test_on_any_figures(seed: int, loads: tuple[int, ...]) -> None:
    """Only what fits is tried, nothing twice, equal figures give equal plans, and no ladder ends below its baseline."""

    def rate(job: Job) -> tuple[float, float]:
        draw = hash((seed, repr(job.setup.layout), job.setup.prefill_schedule_interval,
                     job.setup.long_prefill_token_threshold, job.concurrency))  # fmt: skip
        return 100.0 + draw % 97, 10.0 + draw % 31

    runs = [search(FormulaRunner(rate), HOST, MENU, loads, {}, lambda told: None) for _ in range(2)]
    assert runs[0] == runs[1]
    jobs = [trial.job for trial in runs[0].trials]
    assert len(set(jobs)) == len(jobs)
    for job in jobs:
        engine_config(HOST, job.setup)
    for ladder in runs[0].ladders:
        assert ladder.best.point.tokens_per_gpu_s >= 0.98 * ladder.baseline.point.tokens_per_gpu_s
        kept = [one.trial for one in ladder.together if one.kept]
        assert ladder.best is (kept[-1] if kept else ladder.baseline)
