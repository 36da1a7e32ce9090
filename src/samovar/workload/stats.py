"""What a set of sessions asks of a server, in figures: the answer of `samovar trace stats`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from samovar.base.errors import TraceError
from samovar.workload.curves import CapacityCurves, capacity_grid, in_lanes, keep_warm_hits
from samovar.workload.kv_size import KVSize
from samovar.workload.load import Cause, Load, LoadBuilder, grouped
from samovar.workload.session import SessionTree
from samovar.workload.session_facts import FactsTable, facts_of
from samovar.workload.spread import spread
from samovar.workload.stats_types import (
    Capacity,
    Ceiling,
    KeepWarm,
    Miss,
    SubAgents,
    Times,
    Totals,
    TraceStats,
)

SURVIVE_S = (1, 3, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)


def trace_stats(
    sessions: Iterable[SessionTree], kv: KVSize, *, lanes: int = 16, skipped: Sequence[str] = ()
) -> TraceStats:
    """Reads the sessions once and keeps none of them. `skipped` is read after the last session, so that the iterator
    may still add to it. Raises TraceError when there is no session."""
    builder, facts = LoadBuilder(), FactsTable()
    for group in grouped(sessions):
        numbers = builder.add(group)
        for session, calls in zip(group, numbers, strict=True):
            facts.add(facts_of(session), calls)
    if not facts.rows:
        raise TraceError("no session to describe" + (f": all files were skipped, {skipped[0]}" if skipped else ""))
    load = builder.build()
    distinct = _per_session((load.num_blocks - load.hit_blocks) * load.block_tokens, load)
    peaks = [row.peak_tokens for row in facts.rows]
    later = facts.later_calls
    missed = load.input_tokens - load.hit_tokens
    return TraceStats(
        totals=Totals(
            sessions=len(facts.rows),
            distinct_sessions=len({row.digest for row in facts.rows}),
            calls=load.num_calls,
            input_tokens=int(load.input_tokens.sum()),
            output_tokens=sum(row.output_tokens for row in facts.rows),
            new_blocks_tokens=int(distinct.sum()),
            unchained_blocks=load.unchained_blocks,
            unnamed_tokens=_unnamed_tokens(load),
        ),
        skipped=tuple(skipped),
        ceiling=_ceiling(load, facts),
        misses=_misses(load),
        turns=spread([row.calls for row in facts.rows]),
        main_turns=spread([row.main_turns for row in facts.rows]),
        input_tokens=spread(load.input_tokens),
        output_tokens=spread(facts.output_tokens),
        new_tokens=spread(missed[np.array(later, dtype=np.int64)]),
        peak_tokens=spread(peaks),
        distinct_tokens=spread(distinct),
        kv=kv,
        kv_peak_bytes=spread([kv.bytes_for(tokens) for tokens in peaks]),
        kv_distinct_bytes=spread([kv.bytes_for(int(tokens)) for tokens in distinct]),
        subagents=_subagents(facts),
        times=_times(facts),
        keep_warm=_keep_warm(load),
        capacity=_capacity(load, kv, lanes),
    )


def _unnamed_tokens(load: Load) -> int:
    missing = np.maximum(0, load.input_tokens // load.block_tokens - load.num_blocks)
    return int((missing * load.block_tokens).sum())


def _per_session(values: np.ndarray, load: Load) -> np.ndarray:
    return np.bincount(load.session, weights=values.astype(np.float64)).astype(np.int64)


def _ceiling(load: Load, facts: FactsTable) -> Ceiling:
    total = max(1, int(load.input_tokens.sum()))
    hits = int(load.hit_tokens.sum())
    shared = 0
    for row, missed in zip(facts.rows[1:], facts.first_misses(load)[1:], strict=True):
        shared += min(row.prefix_tokens, missed)
    rates = _per_session(load.hit_tokens, load) / np.maximum(1, _per_session(load.input_tokens, load))
    return Ceiling(
        tokens=hits / total,
        blocks=int(load.hit_blocks.sum()) / max(1, int(load.num_blocks.sum())),
        across_sessions=(hits + shared) / total,
        per_session=spread(rates),
    )


def _misses(load: Load) -> tuple[Miss, ...]:
    missed = load.input_tokens - load.hit_tokens
    total = max(1, int(missed.sum()))
    found = []
    for cause in Cause:
        of_cause = load.cause == cause
        tokens = int(missed[of_cause].sum())
        found.append(Miss(cause.name.lower(), int(of_cause.sum()), tokens, tokens / total))
    return tuple(found)


def _subagents(facts: FactsTable) -> SubAgents:
    rows = facts.rows
    counts = [row.marked + row.unmarked for row in rows]
    return SubAgents(
        sessions_marked=sum(row.marked > 0 for row in rows),
        sessions_any=sum(count > 0 for count in counts),
        marked=sum(row.marked for row in rows),
        unmarked=sum(row.unmarked for row in rows),
        side_calls=sum(row.side_calls for row in rows),
        per_session=spread([count for count in counts if count]),
        calls=spread([calls for row in rows for calls in row.agent_calls]),
        duration_s=spread([length for row in rows for length in row.agent_lengths_s]),
        at_once=spread([row.agents_at_once for row, count in zip(rows, counts, strict=True) if count]),
        input_tokens=spread([tokens for row in rows for tokens in row.agent_inputs]),
        output_tokens=spread([tokens for row in rows for tokens in row.agent_outputs]),
    )


def _times(facts: FactsTable) -> Times:
    rows = facts.rows
    after_tool = [value for row in rows for value in row.think_after_tool_s]
    after_text = [value for row in rows for value in row.think_after_text_s]
    stated = np.array([*after_tool, *after_text] or [0.0])
    return Times(
        gap_s=spread([gap for row in rows for gap in row.gaps_s]),
        think_after_tool_s=spread(after_tool),
        think_after_text_s=spread(after_text),
        think_over_10_s=float((stated > 10).mean()),
        think_over_60_s=float((stated > 60).mean()),
        think_over_300_s=float((stated > 300).mean()),
        api_s=spread([value for row in rows for value in row.api_s]),
        session_s=spread([row.duration_s for row in rows]),
    )


def _keep_warm(load: Load) -> KeepWarm:
    total = max(1, int(load.input_tokens.sum()))
    return KeepWarm(tuple(map(float, SURVIVE_S)), tuple((keep_warm_hits(load, SURVIVE_S) / total).tolist()))


def _capacity(load: Load, kv: KVSize, lanes: int) -> Capacity:
    total = max(1, int(load.input_tokens.sum()))
    curves = CapacityCurves(load, in_lanes(load, lanes))
    grid = capacity_grid(load)
    return Capacity(
        lanes=min(lanes, len(load.group_length_s)),
        groups=len(load.group_length_s),
        tokens=tuple(grid),
        bytes=tuple(kv.bytes_for(tokens) for tokens in grid),
        lru=tuple((curves.lru(grid) / total).tolist()),
        optimal=tuple((curves.optimal(grid) / total).tolist()),
    )
