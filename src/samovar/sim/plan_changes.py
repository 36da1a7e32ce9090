"""The optimisations that a plan tries: each a change of a configuration, on an axis where only one can be chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from samovar.base.errors import ConfigError
from samovar.kv.settings import TierSettings
from samovar.sim.cost.layout import Layout, Mode
from samovar.sim.layouts import Refused, candidates, layout_name, usable
from samovar.sim.plan_setup import Hardware, Setup
from samovar.sim.settings import Acceptance

LAYOUT, LAUNCH, CADENCE, CHUNKS, BUDGET, SLOTS, RETENTION, TIERS, DRAFTS = (
    "layout", "launch", "cadence", "chunks", "budget", "slots", "retention", "tiers", "drafts",
)  # fmt: skip
KV, BANDWIDTH, COLLECTIVES = "KV capacity", "bandwidth", "collectives"
PROMPTS = ("prefill floor", "other ranks")
"""What prompts do to those who decode beside them."""


@dataclass(frozen=True, slots=True)
class Change:
    name: str
    axis: str
    apply: Callable[[Setup], Setup]
    combines: bool = True
    """False: shown alone, to say what its opposite is worth."""
    aims: tuple[str, ...] = ()
    """Causes of a turn's time (`report_limits.CAUSES`) that it is meant to shorten."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a user can have beyond what every engine does."""

    tiers: TierSettings | None = None
    acceptance: Acceptance | None = None
    retention_policy: str = "agent"


@dataclass(frozen=True, slots=True)
class Menu:
    """A baseline and everything that could be done to it."""

    baseline: Setup
    changes: tuple[Change, ...]
    own_layout: Change
    """The baseline's, for a configuration that has left it."""
    refused: tuple[Refused, ...]
    """Layouts that cannot be had, or do not fit."""


def menu(hardware: Hardware, base: Setup, offer: Offer) -> Menu:
    """The baseline is the first usable layout with nothing switched on: `base` gives the rest. Raises ConfigError when
    no layout fits; the message says why for each."""
    bare = replace(base, acceptance=Acceptance(), tiers=None, retention_policy="lru", retention_ttl_s=None)
    fits: list[Setup] = []
    refused: list[Refused] = []
    for layout in candidates(hardware, replace(base.layout, mode="graph")):
        setup = replace(bare, layout=layout)
        problem = usable(hardware, setup)
        if problem is None:
            fits.append(setup)
        else:
            refused.append(problem)
    if not fits:
        raise _nothing_fits(hardware, refused)
    first = fits[0]
    changes = [_layout_change(hardware, setup.layout) for setup in fits[1:]]
    own = _layout_change(hardware, first.layout)
    return Menu(first, (*changes, *_switches(first, offer)), own, tuple(refused))


def neighbours(setup: Setup, lanes: int) -> list[Change]:
    """Finer steps around a configuration that is already good, one knob each: those that it turns, the size of a step,
    and half as many slots as a rank has `lanes`, where that leaves some."""
    found: list[Change] = []
    interval, chunk = setup.prefill_schedule_interval, setup.long_prefill_token_threshold
    for value in (interval // 2, interval * 2):
        if interval > 1 and value > 1:
            found.append(_set(f"prefill interval {value}", CADENCE, PROMPTS, prefill_schedule_interval=value))
    for value in (chunk // 2, chunk * 4):
        if chunk and value < setup.max_num_batched_tokens:
            found.append(_set(f"chunks of {value:,}", CHUNKS, PROMPTS, long_prefill_token_threshold=value))
    for value in (setup.max_num_batched_tokens // 2, setup.max_num_batched_tokens * 2):
        if value > chunk:
            found.append(_set(f"steps of {value:,} tokens", BUDGET, PROMPTS, max_num_batched_tokens=value))
    if 4 <= lanes < 2 * setup.max_num_seqs:
        found.append(_set(f"{lanes // 2} slots", SLOTS, (KV,), max_num_seqs=lanes // 2))
    return found


def combined(setup: Setup, change: Change, taken: frozenset[str]) -> Setup | None:
    """None when its axis is taken already."""
    return None if change.axis in taken else change.apply(setup)


def _layout_change(hardware: Hardware, layout: Layout) -> Change:
    alone_on_tp = layout.dp == 1 and not layout.ep and layout.dcp == 1

    def apply(setup: Setup) -> Setup:
        # Mono decode is given up for a layout that cannot have it: the two are then compared as they are.
        mode = setup.layout.mode if alone_on_tp or setup.layout.mode != "mono" else "graph"
        return replace(setup, layout=replace(layout, mode=mode))

    return Change(layout_name(hardware, layout), LAYOUT, apply, aims=_aims_of_layout(layout))


def _aims_of_layout(layout: Layout) -> tuple[str, ...]:
    if layout.dcp > 1:
        return KV, BANDWIDTH
    if layout.dp > 1:
        return KV, COLLECTIVES
    return () if layout.ep else (COLLECTIVES,)


def _switches(base: Setup, offer: Offer) -> list[Change]:
    found = [
        _launch("mono decode", "mono", aims=("launch",)),
        _launch("eager launches", "eager", combines=False),
        _set("prefill interval 8", CADENCE, PROMPTS, prefill_schedule_interval=8),
        _set("chunks of 512", CHUNKS, PROMPTS, long_prefill_token_threshold=512),
        _set("chunks of 2,048", CHUNKS, PROMPTS, long_prefill_token_threshold=2048),
    ]
    if offer.retention_policy != "lru":
        name = f"retention {offer.retention_policy}"
        found.append(_set(name, RETENTION, (KV,), retention_policy=offer.retention_policy))
    if offer.tiers is not None:
        found.append(_set("tiers below the device", TIERS, (KV,), tiers=offer.tiers))
    if offer.acceptance is not None:
        aims = (BANDWIDTH, "launch")
        found.append(_set(f"{offer.acceptance.drafts} drafts", DRAFTS, aims, acceptance=offer.acceptance))
    return [change for change in found if change.apply(base) != base]


def _launch(name: str, mode: Mode, *, combines: bool = True, aims: tuple[str, ...] = ()) -> Change:
    return Change(name, LAUNCH, lambda setup: replace(setup, layout=replace(setup.layout, mode=mode)), combines, aims)


def _set(name: str, axis: str, aims: tuple[str, ...], **values: Any) -> Change:
    return Change(name, axis, lambda setup: replace(setup, **values), aims=aims)


def _nothing_fits(hardware: Hardware, refused: list[Refused]) -> ConfigError:
    told = "".join(f"\n  {one.name}: {one.reason}" for one in refused)
    return ConfigError(f"no layout of {hardware.model.name} fits {hardware.gpus} x {hardware.device.name}:{told}")
