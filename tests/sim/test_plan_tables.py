"""A plan's tables, page and JSON say what the plan holds."""

from __future__ import annotations

import msgspec

from samovar.sim.plan_changes import Offer, menu
from samovar.sim.plan_page import headline, plan_page
from samovar.sim.plan_result import plan_result
from samovar.sim.plan_search import Plan, search
from samovar.sim.plan_setup import Rules
from samovar.sim.plan_tables import plan_tables, setup_name
from samovar.sim.plan_trial import Bench, Job
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


def made() -> Plan:
    return search(FormulaRunner(rate), HOST, MENU, (1, 64), SLO, lambda done, planned: None)


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


def test_headline_page_and_json() -> None:
    plan = made()
    assert headline(HOST, plan, SLO) == "Recommended: TP8: 64,000 tokens/s and GPU at 50.0 tokens/s (P90), 64 lanes"
    unmet = headline(HOST, plan.__class__(plan.ladders, plan.trials, plan.frontier, plan.recommended, False), SLO)
    assert unmet.startswith("Nothing tried meets p90_interactivity=40; nearest: TP8")
    page = plan_page(HOST, plan, SLO, MENU.refused, ["a <fact>"], {"vLLM": "vllm serve 'a b'"})
    assert "a &lt;fact&gt;" in page and "vllm serve &#x27;a b&#x27;" in page
    assert "What each optimisation brings alone, by load" in page and "Together, 64 lanes" in page
    bench = Bench(HOST, Rules(replay=ReplayConfig(concurrency=1), duration_s=5), SLO)
    result = plan_result(bench, plan, MENU.refused, {"paths": ["x"]}, {})
    again = msgspec.json.decode(msgspec.json.encode(result))["measured"]
    assert len(again["trials"]) == len(plan.trials)
    assert again["trials"][again["recommended"]]["name"] == "TP8"
    kept = [one for one in again["ladders"][0]["together"] if one["kept"]]
    assert [one["name"] for one in kept] == ["mono decode"]
    assert again["trials"][kept[0]["trial"]]["concurrency"] == 1
