"""For every shape: no slower on a better device, no faster with more to do, and parts that add up."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.sim.cost.layout import Layout
from samovar.sim.cost.roofline import CostModel
from samovar.sim.cost.shape import Chunk, StepShape
from samovar.sim.cost.step_cost import PARTS, StepCost
from samovar.spec.catalog import load_device, load_kernels, load_model
from samovar.spec.device import Device
from tests.sim.cost.plain import DEVICE, GQA, KERNELS, MLA, MOE, V4

LAYOUTS = {
    "qwen3-235b tp8": ("qwen3-235b", Layout(tp=8)),
    "qwen3-235b dp8": ("qwen3-235b", Layout(dp=8)),
    "kimi tp8": ("kimi-k2.6", Layout(tp=8)),
    "kimi dcp8": ("kimi-k2.6", Layout(tp=8, dcp=8, dcp_comm="a2a", overlap=0.3)),
    "kimi mono": ("kimi-k2.6", Layout(tp=8, mode="mono")),
    "r1 dep8": ("deepseek-r1", Layout(dp=8, ep=True)),
    "r1 eager": ("deepseek-r1", Layout(dp=8, ep=True, mode="eager", moe_comm="a2a", overlap=1.0)),
    "r1 tp2 dp4": ("deepseek-r1", Layout(tp=2, dp=4, ep=True)),
    "v4 dep8": ("deepseek-v4-pro", Layout(dp=8, ep=True, moe_comm="fused")),
    "v4 dcp8": ("deepseek-v4-pro", Layout(tp=8, dcp=8)),
    "v4 mono": ("deepseek-v4-pro", Layout(tp=8, mode="mono")),
    "smollm tp1": ("smollm2-135m", Layout()),
}
B200 = load_device("B200")
BLACKWELL = load_kernels("blackwell")
MODELS = {name: CostModel(load_model(model), B200, layout, BLACKWELL) for name, (model, layout) in LAYOUTS.items()}

chunks = st.lists(st.builds(Chunk, st.integers(1, 8192), st.integers(0, 200_000)), max_size=3).map(tuple)


@st.composite
def shape(draw: st.DrawFn) -> StepShape:
    sequences = draw(st.integers(0, 80))
    context = draw(st.integers(0, 200_000)) * sequences
    return StepShape(sequences, context, draw(st.integers(1, 5)), draw(st.one_of(st.just(()), chunks)))


@st.composite
def groups(draw: st.DrawFn) -> tuple[str, list[StepShape]]:
    name = draw(st.sampled_from(sorted(LAYOUTS)))
    return name, draw(st.lists(shape(), min_size=LAYOUTS[name][1].dp, max_size=LAYOUTS[name][1].dp))


def slower_or_equal(a: StepCost, b: StepCost) -> bool:
    return a.total_s >= b.total_s * (1 - 1e-9)


@given(groups())
@settings(max_examples=150)
def test_parts_add_up(group: tuple[str, list[StepShape]]) -> None:
    name, shapes = group
    found = MODELS[name].step_s(shapes)
    parts = [getattr(found, part) for part in PARTS]
    assert min(parts) >= 0 and sum(parts) == pytest.approx(found.total_s)
    limits = found.limits()
    assert sum(limits.values()) == pytest.approx(found.total_s) and min(limits.values()) >= -1e-12
    assert limits[found.limit] == max(limits.values())
    assert 0 <= found.slowest_rank < len(shapes)


def better(device: Device, field: str, factor: float) -> Device:
    if field == "memory":
        return replace(device, memory_bytes_per_s=device.memory_bytes_per_s * factor)
    if field == "network":
        faster = replace(device.scale_up, bytes_per_s=device.scale_up.bytes_per_s * factor)
        return replace(device, scale_up=faster)
    return replace(device, flops={name: peak * factor for name, peak in device.flops.items()})


@given(groups(), st.sampled_from(["memory", "network", "flops"]), st.floats(1, 4))
@settings(max_examples=150, deadline=None)
def test_a_better_device_is_never_slower(group: tuple[str, list[StepShape]], field: str, factor: float) -> None:
    name, shapes = group
    faster = CostModel(MODELS[name].model, better(B200, field, factor), LAYOUTS[name][1], BLACKWELL)
    assert slower_or_equal(MODELS[name].step_s(shapes), faster.step_s(shapes))


@given(groups(), st.data())
@settings(max_examples=400)
def test_more_work_is_never_faster(group: tuple[str, list[StepShape]], data: st.DataObject) -> None:
    name, shapes = group
    more = list(shapes)
    at = data.draw(st.integers(0, len(shapes) - 1))
    more[at] = grown(shapes[at], data)
    assert slower_or_equal(MODELS[name].step_s(more), MODELS[name].step_s(shapes))


def grown(before: StepShape, data: st.DataObject) -> StepShape:
    """More contexts, sequences (with or without context of their own), drafts, or chunks, or longer ones."""
    kind = data.draw(st.sampled_from(["context", "sequences", "drafts", "chunk", "longer", "deeper"]))
    amount = data.draw(st.integers(1, 3000))
    num, context, per, parts = (
        before.decode_sequences,
        before.context_tokens,
        before.rows_per_sequence,
        before.chunks,
    )
    if kind == "context" and num:
        context += amount
    elif kind == "sequences":
        num, context = num + amount % 8 + 1, context + data.draw(st.sampled_from([0, 50_000]))
    elif kind == "drafts":
        per += 1
    elif kind == "chunk" or not parts:
        parts = (*parts, Chunk(amount, data.draw(st.integers(0, 100_000))))
    elif kind == "longer":
        parts = (Chunk(parts[0].new_tokens + amount, parts[0].context_tokens), *parts[1:])
    else:
        parts = (Chunk(parts[0].new_tokens, parts[0].context_tokens + amount), *parts[1:])
    return StepShape(num, context, per, parts)


@given(st.sampled_from([GQA, MOE, MLA, V4]), st.lists(shape(), min_size=1, max_size=1), st.data())
@settings(max_examples=200)
def test_nor_on_a_machine_without_any_overhead(model: object, shapes: list[StepShape], data: st.DataObject) -> None:
    """Where no floor of a step with prompts hides that one became cheaper."""
    cost = CostModel(model, DEVICE, Layout(), KERNELS)  # type: ignore[arg-type]
    assert slower_or_equal(cost.step_s([grown(shapes[0], data)]), cost.step_s(shapes))
