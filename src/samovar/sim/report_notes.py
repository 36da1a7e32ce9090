"""What one has to know of a simulation's step times before believing it: how far measured steps reach, and a constant
that was fitted on another engine than this one."""

from __future__ import annotations

from samovar.sim.cost.layout import Layout
from samovar.sim.cost.step_table import StepTable
from samovar.sim.outcome import SimRun
from samovar.sim.plan_setup import Hardware, Setup, block_tokens
from samovar.spec.catalog import load_kernels

FITTED_KERNELS, FITTED_MODEL, FITTED_DEVICE, FITTED_RANKS = "blackwell", "DeepSeek-V4-Pro", "B200", 8
"""The published run that the prefill floor comes from: T6 of docs/simulator.md."""


def step_notes(hardware: Hardware, layout: Layout) -> list[str]:
    """Before a run, one line each; none when there is nothing to know."""
    if hardware.measured is not None:
        return _reach(hardware.measured)
    kernels = load_kernels(hardware.device.kernels)
    floor_s = kernels.step.prefill_floor_s
    if not floor_s or floor_s != load_kernels(FITTED_KERNELS).step.prefill_floor_s:
        return []
    model, device = hardware.model.name, hardware.device.name
    if (model, device) != (FITTED_MODEL, FITTED_DEVICE):
        unknown = f"{model} on {device}"
    elif layout.dp != FITTED_RANKS:
        unknown = "other layouts"
    else:
        return []
    return [
        f"Any step with a prompt costs {1e3 * floor_s:g} ms beyond its work: fitted on {FITTED_MODEL} with "
        f"DP{FITTED_RANKS} on {FITTED_DEVICE} alone, and not known for {unknown}"
    ]


def left_notes(hardware: Hardware, setup: Setup, run: SimRun) -> list[str]:
    """After a run, where its steps went beyond those that were measured: their times are the last slope's."""
    if hardware.measured is None:
        return []
    last = hardware.measured.reach
    size = block_tokens(hardware, setup.layout)
    computed = [r.prompt_tokens - (r.cached_tokens or 0) for r in run.records]
    seen = (
        ("sequences", max((s.running for s in run.memory), default=0), last[0]),
        ("prompt tokens", min(max(computed, default=0), setup.max_num_batched_tokens), last[1]),
        ("tokens of context", max((s.used_blocks for s in run.memory), default=0) * size, last[2]),
    )
    beyond = [f"{most:,} {what} (measured: up to {limit:,.0f})" for what, most, limit in seen if most > limit]
    return [f"Steps went beyond those measured: {', '.join(beyond)}"] if beyond else []


def _reach(table: StepTable) -> list[str]:
    batch, prefill, kv = table.reach
    lines = [
        f"Steps measured up to {batch:,.0f} sequences, {prefill:,.0f} prompt tokens and {kv:,.0f} tokens of context; "
        "beyond that the last slope goes on"
    ]
    axes = ("the sequences", "the prompt tokens", "the context")
    flat = [name for name, knots in zip(axes, table.knots, strict=True) if len(knots) == 1]
    if flat:
        lines.append(
            f"These steps take equally long whatever {' and '.join(flat)}: they were measured at one value only"
        )
    return lines
