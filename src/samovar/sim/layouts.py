"""Ways to spread a model over N devices that are worth a try, and what stands against the others."""

from __future__ import annotations

from dataclasses import dataclass, replace

from samovar.base.errors import ConfigError
from samovar.sim.cost.layout import Layout
from samovar.sim.plan_setup import Hardware, Setup, engine_config, num_replicas, tier_sizes


@dataclass(frozen=True, slots=True)
class NamedLayout:
    name: str
    layout: Layout


@dataclass(frozen=True, slots=True)
class Refused:
    """A configuration that cannot be had, and why."""

    name: str
    reason: str


def layout_name(hardware: Hardware, layout: Layout) -> str:
    """TP8, TP8+DCP8, DEP8, DP4xTP2+EP, 2 x TP4; launch modes other than graphs behind it."""
    if layout.dp > 1 and layout.tp == 1 and layout.ep:
        name = f"DEP{layout.dp}"
    else:
        name = f"TP{layout.tp}" if layout.dp == 1 else f"DP{layout.dp}xTP{layout.tp}"
        name += f"+DCP{layout.dcp}" if layout.dcp > 1 else ""
        name += "+EP" if layout.ep else ""
    replicas = num_replicas(hardware, layout)
    if replicas > 1:
        name = f"{replicas} x {name}"
    return name if layout.mode == "graph" else f"{name}, {layout.mode}"


def candidates(hardware: Hardware, base: Layout) -> list[Layout]:
    """Tensor parallelism over all devices first, then the others in the order in which people think of them. What the
    model cannot have is among them: `usable` says why not. `base` gives what is not tried: formats, exchanges."""
    n = hardware.gpus
    found = [replace(base, tp=n, dp=1, ep=False, dcp=1)]
    found += [replace(base, tp=n, dp=1, ep=False, dcp=dcp) for dcp in _halves(n) if dcp > 1]
    if hardware.model.moe is not None and n > 1:
        found.append(replace(base, tp=1, dp=n, ep=True, dcp=1))
        found += [replace(base, tp=tp, dp=n // tp, ep=True, dcp=1) for tp in _halves(n)[::-1] if 1 < tp < n]
        found.append(replace(base, tp=n, dp=1, ep=True, dcp=1))
    found += [replace(base, tp=tp, dp=1, ep=False, dcp=1) for tp in _halves(n) if tp < n]
    return found


def usable(hardware: Hardware, setup: Setup) -> Refused | None:
    """None when the configuration fits and all of it has an effect."""
    try:
        name = layout_name(hardware, setup.layout)
    except ConfigError as error:
        return Refused(f"tp {setup.layout.tp}, dp {setup.layout.dp}", error.message)
    try:
        engine_config(hardware, setup)
        tier_sizes(hardware, setup)
    except ConfigError as error:
        return Refused(name, error.message)
    return None


def _halves(n: int) -> list[int]:
    """n and its divisors by powers of two, falling."""
    found = [n]
    while found[-1] % 2 == 0:
        found.append(found[-1] // 2)
    return found
