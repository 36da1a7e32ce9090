"""A plan's tables, page and JSON say what the plan holds."""

from __future__ import annotations

import msgspec

from samovar.sim.outcome import TurnTiming
from samovar.sim.plan_changes import Offer, menu
from samovar.sim.plan_page import headline, plan_page
from samovar.sim.plan_result import plan_result
from samovar.sim.plan_search import Plan, search
from samovar.sim.plan_setup import Rules
from samovar.sim.plan_tables import kept, plan_tables, setup_name, why_table
from samovar.sim.plan_trial import Bench, Job
from samovar.sim.plan_unfinished import unfinished, unfinished_page, unfinished_tables
from samovar.sim.report_limits import Explained
from samovar.sim.report_tables import Table
from samovar.sim.settings import Acceptance
from samovar.workload.replay import ReplayConfig
from tests.sim.plan_made import FormulaRunner, hardware, setup

HOST = hardware("deepseek-v4-pro", "GB300")
MENU = menu(HOST, setup(), Offer())
SLO = {"interactivity": 40.0}


def rate(job: Job) -> tuple[float, float]:
    many = job.concurrency == 64
    mono = job.setup.layout.mode == "mono"
    return 1000.0 * job.concurrency * (1.3 if mono and not many else 0.9 if mono else 1.0), 50.0 if many else 60.0


def turns(job: Job) -> Explained:
    """Four seconds, of which mono decode saves the one that launches take."""
    if job.setup.layout.mode == "mono":
        return Explained(10, TurnTiming(decode_s=3.0), {"bandwidth": 1.0}, 0.5, 0.2, 0.0, 0.1)
    return Explained(10, TurnTiming(decode_s=4.0), {"bandwidth": 0.75, "launch": 0.25}, 0.5, 0.2, 0.0, 0.1)


def made() -> Plan:
    return search(FormulaRunner(rate, turns), HOST, MENU, (1, 64), SLO, lambda told: None)


def tables(plan: Plan) -> dict[str, Table]:
    return {table.title.split(",")[0]: table for table in plan_tables(HOST, plan, SLO, MENU.refused)}


def test_names_say_every_knob() -> None:
    one = setup(max_num_seqs=16, prefill_schedule_interval=8, long_prefill_token_threshold=2048,
                max_num_batched_tokens=4096, acceptance=Acceptance(3, 2.5), retention_policy="agent")  # fmt: skip
    assert setup_name(HOST, one) == "TP8, interval 8, chunks 2,048, steps 4,096, 16 slots, 3 drafts, agent"
    assert setup_name(HOST, setup()) == "TP8"


def test_none_fits_all() -> None:
    found = tables(made())
    alone = {row[0]: row[1:] for row in found["What each optimisation contributes alone"].rows}
    assert alone["mono decode"] == ("+30% / 0%", "-10% / 0%")
    assert alone["DEP8"] == ("0% / 0%", "0% / 0%")
    assert alone["2 x TP4"][0] == "–"
    best = found["The best configuration at each load"].rows
    assert [row[:4] for row in best] == [
        ("1", "TP8, mono", "60.0", "1,300"),
        ("64", "TP8", "50.0", "64,000"),
    ]
    together = found["Together"]
    assert together.rows[0][0] == "baseline"
    lost = {row[0]: row[1:] for row in found["Not to be had"].rows}
    assert lost["2 x TP4"][0] == "1" and "cannot share it evenly" in lost["2 x TP4"][1]
    assert lost["8 x TP1"][0] == "any" and "beside its KV" in lost["8 x TP1"][1]


def test_every_optimisation_is_explained_at_every_load() -> None:
    few, many = made().ladders
    for ladder in (few, many):
        names = [row[0] for row in why_table(ladder).rows]
        assert names[: len(ladder.alone)] == [one.name for one in ladder.alone] and len(set(names)) == len(names)
    mono = {one.concurrency: {row[0]: row for row in why_table(one).rows}["mono decode"] for one in (few, many)}
    assert mono[1] == (
        "mono decode", "launch 25%", "+30% / 0%", "+30% / 0%, kept", "4.00 → 3.00: launch 1.00 → 0.00"
    )  # fmt: skip
    assert mono[64] == ("mono decode", "launch 25%", "-10% / 0%", "-10% / 0%", "4.00 → 3.00: launch 1.00 → 0.00")
    rows = {row[0]: row for row in why_table(few).rows}
    assert rows["2 x TP4"][2] == "not to be had" and "cannot share it evenly" in rows["2 x TP4"][4]
    assert rows["prefill interval 8"][4] == "3.00 → 3.00: no part changes by 2% of a turn"
    assert why_table(many).rows and not kept(many.together)


def test_what_goes_with_nothing_else_says_so() -> None:
    """DCP is taken first, and mono decode cannot be had with it."""

    def dcp_first(job: Job) -> tuple[float, float]:
        layout = job.setup.layout
        return (400.0 if layout.dcp == 8 else 130.0 if layout.mode == "mono" else 100.0), 50.0

    plan = search(FormulaRunner(dcp_first, turns), HOST, MENU, (64,), {}, lambda told: None)
    mono = {row[0]: row for row in why_table(plan.ladders[0]).rows}["mono decode"]
    assert mono[2:4] == ("+30% / 0%", "not to be had")
    assert mono[4].startswith("4.00 → 3.00: launch 1.00 → 0.00; with what was kept: --monokernel works with tensor")


def test_gains_are_over_what_a_change_was_put_on() -> None:
    (few, _) = made().ladders
    (mono,) = kept(few.together)
    assert mono.over is few.baseline and mono.trial is few.best
    later = few.together[few.together.index(mono) + 1 :]
    assert later and all(one.over is few.best for one in later if one.trial is not None)
    assert all(one.over is few.baseline for one in few.alone if one.trial is not None)


def test_what_was_stopped_has_a_frontier_and_no_recommendation() -> None:
    trials = made().trials[:5]
    part = unfinished(trials, 70, SLO, "interrupted")
    assert part.told == "interrupted after 5 of about 70 simulations"
    assert set(map(id, part.frontier)) <= set(map(id, trials))
    assert len(part.best) == len({one.job.concurrency for one in trials})
    page = unfinished_page(HOST, part, SLO, ["a <fact>"])
    assert "Not finished: interrupted after 5 of about 70" in page and "recommended" not in page.split("<script")[0]
    titles = [table.title for table in unfinished_tables(HOST, part, SLO)]
    assert titles == ["The best configuration at each load so far", "Frontier"]


def test_headline_page_and_json() -> None:
    plan = made()
    assert headline(HOST, plan, SLO) == "Recommended: TP8: 64,000 tokens/s and GPU at 50.0 tokens/s (P90), 64 lanes"
    unmet = headline(HOST, plan.__class__(plan.ladders, plan.trials, plan.frontier, plan.recommended, False), SLO)
    assert unmet.startswith("Nothing tried meets p90_interactivity=40; nearest: TP8")
    page = plan_page(HOST, plan, SLO, MENU.refused, ["a <fact>"], {"vLLM": "vllm serve 'a b'"})
    assert "a &lt;fact&gt;" in page and "vllm serve &#x27;a b&#x27;" in page
    assert "None fits all: what each optimisation brings alone, by load" in page and "Together, 64 lanes" in page
    assert "1 lane: +30% from TP8 to TP8, mono" in page and "64 lanes: TP8, the baseline" in page
    assert "Nothing that was tried is better than the baseline at this load." in page
    assert "<script src" not in page and "<link" not in page
    bench = Bench(HOST, Rules(replay=ReplayConfig(concurrency=1), duration_s=5), SLO)
    result = plan_result(bench, plan, MENU.refused, {"paths": ["x"]}, {})
    again = msgspec.json.decode(msgspec.json.encode(result))["measured"]
    assert len(again["trials"]) == len(plan.trials)
    assert again["trials"][again["recommended"]]["name"] == "TP8"
    kept = [one for one in again["ladders"][0]["together"] if one["kept"]]
    assert [one["name"] for one in kept] == ["mono decode"]
    assert again["trials"][kept[0]["trial"]]["concurrency"] == 1
