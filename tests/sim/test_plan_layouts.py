"""Which layouts are tried, what they are called, and what stands against the others."""

from __future__ import annotations

import pytest

from samovar.base.errors import ConfigError
from samovar.kv.settings import tiers_of
from samovar.sim.cost.layout import Layout
from samovar.sim.layouts import candidates, layout_name, usable
from samovar.sim.plan_changes import LAYOUT, Offer, combined, menu, neighbours
from samovar.sim.settings import Acceptance
from tests.sim.plan_made import hardware, setup


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        (Layout(tp=8), "TP8"),
        (Layout(tp=8, dcp=4), "TP8+DCP4"),
        (Layout(dp=8, ep=True), "DEP8"),
        (Layout(tp=2, dp=4, ep=True), "DP4xTP2+EP"),
        (Layout(tp=4), "2 x TP4"),
        (Layout(tp=8, mode="mono"), "TP8, mono"),
    ],
)
def test_names(layout: Layout, name: str) -> None:
    assert layout_name(hardware(), layout) == name


def test_candidates_use_every_device_and_differ() -> None:
    for gpus in (1, 2, 6, 8):
        host = hardware("deepseek-v4-pro", gpus=gpus)
        found = candidates(host, Layout())
        assert len(set(found)) == len(found)
        assert all(gpus % layout.devices == 0 for layout in found)
        assert found[0] == Layout(tp=gpus)
    assert not any(layout.ep for layout in candidates(hardware("qwen3-235b"), Layout()) if layout.devices == 1)
    assert not any(layout.dp > 1 or layout.ep for layout in candidates(hardware("smollm2-135m"), Layout()))


def test_unusable_layouts_say_why() -> None:
    host = hardware()
    assert usable(host, setup()) is None
    big = usable(host, setup(layout=Layout(tp=2)))
    assert big is not None and big.name == "4 x TP2" and "302.0 GB" in big.reason
    long = usable(host, setup(max_model_len=5_000_000))
    assert long is not None and "a request of 5,000,000 tokens does not fit" in long.reason
    odd = usable(host, setup(layout=Layout(tp=3)))
    assert odd is not None and "--gpus is 8; it must be a multiple" in odd.reason


def test_the_menu_is_a_baseline_and_what_can_be_done_to_it() -> None:
    host = hardware("deepseek-v4-pro")
    found = menu(host, setup(retention_policy="agent"), Offer(acceptance=Acceptance(3, 2.49)))
    assert found.baseline == setup(layout=Layout(tp=8))
    names = [change.name for change in found.changes]
    assert len(set(names)) == len(names)
    assert {"TP8+DCP8", "DEP8", "mono decode", "prefill interval 8", "3 drafts", "retention agent"} <= set(names)
    assert all(change.apply(found.baseline) != found.baseline for change in found.changes)
    assert "8 x TP1" in [one.name for one in found.refused]


def test_a_menu_without_a_layout_says_why_for_each() -> None:
    with pytest.raises(ConfigError) as raised:
        menu(hardware(gpus=2), setup(), Offer())
    assert "no layout of Kimi-K2.6 fits 2 x B200" in raised.value.message
    assert "DEP2: " in raised.value.message and "TP2: " in raised.value.message


def test_mono_decode_is_given_up_for_a_layout_that_cannot_have_it() -> None:
    found = menu(hardware("deepseek-v4-pro", "GB300"), setup(), Offer())
    changes = {change.name: change for change in found.changes}
    mono = changes["mono decode"].apply(found.baseline)
    assert mono.layout.mode == "mono"
    assert changes["2 x TP4"].apply(mono).layout == Layout(tp=4, mode="mono")
    assert changes["DEP8"].apply(mono).layout == Layout(dp=8, ep=True)
    assert changes["DEP8"].apply(changes["eager launches"].apply(found.baseline)).layout.mode == "eager"


def test_one_choice_per_axis() -> None:
    found = menu(hardware("deepseek-v4-pro"), setup(), Offer())
    change = next(change for change in found.changes if change.axis == LAYOUT)
    assert combined(found.baseline, change, frozenset({LAYOUT})) is None
    assert combined(found.baseline, change, frozenset({"chunks"})) == change.apply(found.baseline)


def test_neighbours_turn_knobs_that_are_turned() -> None:
    plain = [change.name for change in neighbours(setup(), 2)]
    assert plain == ["steps of 4,096 tokens", "steps of 16,384 tokens"]
    assert [change.name for change in neighbours(setup(), 16)][2:] == ["8 slots"]
    assert not any("slots" in change.name for change in neighbours(setup(max_num_seqs=4), 16))
    turned = setup(prefill_schedule_interval=8, long_prefill_token_threshold=2048, max_num_batched_tokens=4096)
    names = [change.name for change in neighbours(turned, 1)]
    assert names == ["prefill interval 4", "prefill interval 16", "chunks of 1,024", "steps of 8,192 tokens"]
    assert all(usable(hardware(), change.apply(turned)) is None for change in neighbours(turned, 1))


def test_tiers_that_hold_nothing_are_not_tried() -> None:
    refused = usable(hardware(), setup(tiers=tiers_of(offloading_size="1MB")))
    assert refused is not None and "holds no block" in refused.reason
    assert usable(hardware(), setup(tiers=tiers_of(offloading_size="64"))) is None
