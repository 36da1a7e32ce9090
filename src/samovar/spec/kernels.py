"""How close kernels of one engine come to a device's peaks, and what they cost before they do any work.

Every figure is measured or says that it is assumed; the files in `data/kernels` name their sources. A kernel takes
`floor_s + max(operations / (compute_efficiency x peak), bytes / (memory_efficiency x bandwidth))`, its floor being the
launch and latency of a captured graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from samovar.base.errors import ConfigError
from samovar.spec.attention_shape import KINDS
from samovar.spec.number_format import COMPUTE_TYPES, ComputeType
from samovar.spec.toml_table import TomlTable


@dataclass(frozen=True, slots=True)
class Efficiency:
    floor_s: float
    memory: float
    """Share of the bandwidth, 0 to 1."""
    compute: float
    """Share of the peak of the products' type, 0 to 1."""


@dataclass(frozen=True, slots=True)
class AttentionEfficiency:
    """Of the attention kernels of one kind over KV of one type, per layer."""

    floor_s: float
    floor_per_head_s: float
    memory: float
    compute: float
    prefill_compute: float
    row_head_s: float
    """Of every decoding row and head, beside the context: norms, rotations, merging partial results."""
    prefill_row_head_s: float
    index_floor_s: float
    """Launches of an index's kernels; 0 where there is none."""


@dataclass(frozen=True, slots=True)
class Collective:
    """Measured seconds of one kind of exchange by bytes per rank, among `ranks` at `bytes_per_s`."""

    ranks: int
    bytes_per_s: float
    points: tuple[tuple[float, float], ...]
    """(bytes, seconds), bytes rising. Between two points linear; behind the last as between the last two."""


@dataclass(frozen=True, slots=True)
class Launch:
    eager_op_s: float
    """What the host needs to launch one kernel."""
    graph_op_s: float
    """A small kernel in a captured graph: its launch and its own time."""
    ops_per_module: int
    """Kernels that a module launches beside those the cost model counts one by one."""


@dataclass(frozen=True, slots=True)
class MonoEfficiency:
    """Mono decode: stages of resident kernels instead of launches."""

    stage_s: float
    """What one stage waits for the one before it."""
    stages: Mapping[str, int]
    """Per layer, by kind of attention."""
    launches: Mapping[str, int]
    """Kernels that are still launched in a layer."""
    memory: float
    compute: float
    """Of small tiles without the tuned products' pipelines."""
    max_rows: int
    """Steps with more rows run as a graph."""


@dataclass(frozen=True, slots=True)
class StepOverhead:
    """What a step costs beside its layers, on one engine."""

    prefill_floor_s: float
    """Any step of the group that computes a prompt: no whole-step graph, metadata, ranks out of step."""
    sync_s: float
    """Ranks of a DP group agree on a step."""
    sample_s: float
    sample_row_s: float
    host_sequence_s: float
    """Bookkeeping per sequence that the device waits for."""


@dataclass(frozen=True, slots=True)
class Kernels:
    name: str
    source: str
    date: str
    products: Mapping[ComputeType, Efficiency]
    experts: Mapping[ComputeType, Efficiency]
    expert_imbalance: float
    """Tokens of the busiest rank over the mean, when whole experts are divided over ranks."""
    attention: Mapping[tuple[str, ComputeType], AttentionEfficiency]
    """By kind of attention and type of KV."""
    collectives: Mapping[str, Collective]
    """all_reduce, all_gather, all_to_all, and dispatch: an expert exchange, both ways."""
    launch: Launch
    mono: MonoEfficiency
    step: StepOverhead


COLLECTIVES = ("all_reduce", "all_gather", "all_to_all", "dispatch")


def read_kernels(table: TomlTable) -> Kernels:
    """Raises ConfigError."""
    table.text("based_on", "-")  # merged before
    collectives = table.table("collectives")
    kernels = Kernels(
        name=table.text("name"),
        source=table.text("source"),
        date=table.day("date"),
        products=_read_efficiencies(table.table("products")),
        experts=_read_efficiencies(table.table("experts")),
        expert_imbalance=table.number("expert_imbalance", above=0.999),
        attention=_read_attention(table),
        collectives={name: _read_collective(collectives.table(name)) for name in COLLECTIVES},
        launch=_read_launch(table.table("launch")),
        mono=_read_mono(table.table("mono")),
        step=_read_step(table.table("step")),
    )
    table.done()
    return kernels


def _read_efficiencies(table: TomlTable) -> dict[ComputeType, Efficiency]:
    """bf16 must be there: other types fall back to it."""
    found = {name: _read_efficiency(table.table(name)) for name in COMPUTE_TYPES if table.has(name)}
    if "bf16" not in found:
        raise table.wrong("bf16", "a table: what has no figures of its own falls back to it")
    return found


def _read_efficiency(table: TomlTable) -> Efficiency:
    _source(table)
    return Efficiency(table.duration_s("floor_s"), table.fraction("memory"), table.fraction("compute"))


def _source(table: TomlTable) -> None:
    """A table may say where its figures come from; for readers of the file."""
    table.text("source", "-")


def _read_attention(table: TomlTable) -> dict[tuple[str, ComputeType], AttentionEfficiency]:
    found: dict[tuple[str, ComputeType], AttentionEfficiency] = {}
    for entry in table.tables("attention"):
        _source(entry)
        kind = entry.text("kind", choices=KINDS)
        kept = entry.text("kv", choices=COMPUTE_TYPES)
        compute = next(item for item in COMPUTE_TYPES if item == kept)
        if (kind, compute) in found:
            raise ConfigError(f"{table.where}: two attention tables for {kind} over {compute}")
        found[kind, compute] = AttentionEfficiency(
            floor_s=entry.duration_s("floor_s"),
            floor_per_head_s=entry.duration_s("floor_per_head_s", 0.0),
            memory=entry.fraction("memory"),
            compute=entry.fraction("compute"),
            prefill_compute=entry.fraction("prefill_compute"),
            row_head_s=entry.duration_s("row_head_s"),
            prefill_row_head_s=entry.duration_s("prefill_row_head_s"),
            index_floor_s=entry.duration_s("index_floor_s", 0.0),
        )
    return found


def _read_collective(table: TomlTable) -> Collective:
    _source(table)
    points = tuple((row[0], row[1]) for row in table.rows("points", 2))
    ordered = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(points))
    if len(points) < 2 or not ordered:
        raise table.wrong("points", "two or more rows [bytes, seconds], bytes rising and seconds not falling")
    return Collective(table.integer("ranks", minimum=2), table.positive("bytes_per_s"), points)


def _read_launch(table: TomlTable) -> Launch:
    _source(table)
    return Launch(
        eager_op_s=table.duration_s("eager_op_s"),
        graph_op_s=table.duration_s("graph_op_s"),
        ops_per_module=table.integer("ops_per_module", minimum=0),
    )


def _read_mono(table: TomlTable) -> MonoEfficiency:
    _source(table)
    stages, launches = table.table("stages"), table.table("launches")
    return MonoEfficiency(
        stage_s=table.duration_s("stage_s"),
        stages={kind: stages.integer(kind) for kind in KINDS},
        launches={kind: launches.integer(kind, minimum=0) for kind in KINDS},
        memory=table.fraction("memory"),
        compute=table.fraction("compute"),
        max_rows=table.integer("max_rows"),
    )


def _read_step(table: TomlTable) -> StepOverhead:
    _source(table)
    names = ("prefill_floor_s", "sync_s", "sample_s", "sample_row_s", "host_sequence_s")
    return StepOverhead(*(table.duration_s(name) for name in names))
