"""What makes two plans equal: everything that figures depend on, by the names that users know."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samovar.kv.settings import tiers_of
from samovar.sim import plan_settings
from samovar.sim.plan_changes import Menu, Offer, menu
from samovar.sim.plan_settings import differing, settings_of, unsure
from samovar.sim.plan_setup import Hardware, Rules, Setup
from samovar.sim.plan_trial import Bench
from samovar.sim.settings import FrontEnd
from samovar.spec.catalog import load_device
from samovar.workload.metrics_cost import price_of
from samovar.workload.replay import ReplayConfig
from samovar.workload.session import SessionTree, Stream
from tests.sim.plan_made import hardware, setup
from tests.workload.made_up import turn

HOST = hardware("deepseek-v4-flash")
RULES = Rules(replay=ReplayConfig(concurrency=1), duration_s=900)


def session(tokens: int = 640, ids: range = range(1, 11), source: str = "a.json") -> SessionTree:
    return SessionTree("s", 64, (Stream("main", "main", (turn(0.0, 1.0, ids, tokens=tokens),)),), "s", source)


def of(
    host: Hardware = HOST,
    rules: Rules = RULES,
    base: Setup | None = None,
    offer: Offer | None = None,
    loads: tuple[int, ...] = (1, 16),
    tree: SessionTree | None = None,
    **bench: object,
) -> dict[str, str]:
    found: Menu = menu(host, base or setup(), offer or Offer())
    return settings_of(Bench(host, rules, **bench), found, loads, (tree or session(),))  # type: ignore[arg-type]


def test_equal_ones_are_equal() -> None:
    assert of() == of(tree=session(source="moved/a.json"))
    assert differing(of(), of()) == ""
    assert of() == of(rules=replace(RULES, replay=replace(RULES.replay, concurrency=7)))


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (of(rules=replace(RULES, duration_s=300)), "--duration was 900 and is 300"),
        (of(rules=replace(RULES, replay=replace(RULES.replay, seed=7))), "--seed was 42 and is 7"),
        (of(rules=replace(RULES, replay=replace(RULES.replay, idle_cap_s=5.0))), "--idle-cap was 10.0 and is 5.0"),
        (of(rules=replace(RULES, front_end=FrontEnd(0.5))), "--front-end-request-ms, in seconds, was 0.0 and is 0.5"),
        (of(hardware("deepseek-v4-flash", gpus=4)), "--gpus was 8 and is 4"),
        (of(replace(HOST, device=load_device("GB300"))), "--device was B200 ("),
        (of(replace(HOST, model=replace(HOST.model, block_tokens=64))), "--model was DeepSeek-V4-Flash ("),
        (of(replace(HOST, device=replace(HOST.device, memory_bytes=10**11))), "--device was B200 ("),
        (of(base=setup(max_num_seqs=16)), "--max-num-seqs was 256 and is 16"),
        (of(offer=Offer(tiers=tiers_of(offloading_size="8"))), "what is tried beside the baseline was "),
        (of(loads=(1, 16, 64)), "--concurrency was 1,16 and is 1,16,64"),
        (of(slo={"interactivity": 50.0}), "--slo was none and is p90_interactivity=50"),
        (of(price=price_of("B200")), "--price was None and is Price("),
        (of(tree=session(tokens=641)), "the load (--trace, --scale, --fit) was 1 sessions, "),
        (of(tree=session(ids=range(2, 12))), "the load (--trace, --scale, --fit) was 1 sessions, "),
    ],
)  # fmt: skip
def test_others_are_told_apart_by_name(other: dict[str, str], told: str) -> None:
    assert differing(of(), other).startswith(told)


def test_code_that_was_changed_since_its_revision_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    clean, changed = "0123456789abcdef" * 2 + "01234567", "0123456789abcdef" * 2 + "01234567+dirty"
    found = []
    for revision in ("", clean, changed):
        monkeypatch.setattr(plan_settings, "git_revision", lambda of=revision: of)
        found.append(of())
    none, before, after = found
    assert before["samovar"] == f"{none['samovar']} 0123456789ab" and after["samovar"] == before["samovar"] + "+dirty"
    assert unsure(before, before) == unsure(none, none) == unsure({}, before) == ""
    assert unsure(after, before) == f"samovar was {after['samovar']}: changed since that revision, nobody knows how"
    assert unsure(before, after).startswith(f"samovar is {after['samovar']}: ")
