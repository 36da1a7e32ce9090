"""The statistics as rows of text, the same for the terminal and the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from samovar.workload.quantities import bytes_text, count_text, median_text, share_text, time_text, tokens_text
from samovar.workload.spread import Spread
from samovar.workload.stats_types import TraceStats

SPREAD_COLUMNS = ("", "median", "P90", "P99", "max", "mean")
CAUSES = {
    "first": "first prompt of a session",
    "growth": "growth: answers, tool results, questions",
    "cut_to_start": "prefix cut near its start (compaction)",
    "cut_in_context": "prefix cut further behind (an edit)",
    "subagent": "first prompt of a sub-agent or side call",
}


@dataclass(frozen=True, slots=True)
class Block:
    """A small table. The first cell of a row names it; `help` says how its figures are made."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    help: str = ""


def stats_blocks(stats: TraceStats) -> list[Block]:
    return [_overview(stats), _distributions(stats), _misses(stats), _subagents(stats), _warm(stats), _capacity(stats)]


def _overview(stats: TraceStats) -> Block:
    totals, ceiling = stats.totals, stats.ceiling
    sessions = count_text(totals.sessions)
    if totals.distinct_sessions < totals.sessions:
        sessions += f" ({totals.sessions - totals.distinct_sessions} are copies)"
    rows = [
        ("sessions", sessions),
        ("model calls", count_text(totals.calls)),
        ("tokens in", tokens_text(totals.input_tokens)),
        ("tokens out", tokens_text(totals.output_tokens)),
        ("distinct tokens", tokens_text(totals.new_blocks_tokens)),
        ("hit rate ceiling, tokens", share_text(ceiling.tokens)),
        ("hit rate ceiling, blocks (AgentX)", share_text(ceiling.blocks)),
        ("   with tools and system prompts shared", share_text(ceiling.across_sessions)),
        (
            "   per session P10 / median / P90",
            " / ".join(
                share_text(x) for x in (ceiling.per_session.p10, ceiling.per_session.p50, ceiling.per_session.p90)
            ),
        ),
    ]
    if totals.unchained_blocks:
        rows.append(("blocks whose ids are not chained", count_text(totals.unchained_blocks)))
    if totals.unnamed_tokens:
        rows.append(("tokens without a block id, taken for new", tokens_text(totals.unnamed_tokens)))
    if stats.skipped:
        rows.append(("files skipped", count_text(len(stats.skipped))))
    return Block("Load", ("", ""), tuple(rows), "Ceiling: what a cache that never loses anything would find.")


def _distributions(stats: TraceStats) -> Block:
    times = stats.times
    rows = (
        _row("model calls per session", stats.turns, count_text, median_text),
        _row("   of the main agent", stats.main_turns, count_text, median_text),
        _row("tokens in per call", stats.input_tokens, tokens_text),
        _row("tokens out per call", stats.output_tokens, tokens_text),
        _row("new tokens per later call", stats.new_tokens, tokens_text),
        _row("longest context per session", stats.peak_tokens, tokens_text),
        _row(f"   as KV of {stats.kv.name}", stats.kv_peak_bytes, bytes_text),
        _row("distinct tokens per session", stats.distinct_tokens, tokens_text),
        _row(f"   as KV of {stats.kv.name}", stats.kv_distinct_bytes, bytes_text),
        _row("gap between turns", times.gap_s, time_text),
        _row("think time after tool result", times.think_after_tool_s, time_text),
        _row("think time after text", times.think_after_text_s, time_text),
        _row("recorded time of a call", times.api_s, time_text),
        _row("session", times.session_s, time_text),
    )
    shares = (times.think_over_10_s, times.think_over_60_s, times.think_over_300_s)
    over = ", ".join(f"{share_text(s)} over {t} s" for s, t in zip(shares, (10, 60, 300), strict=True))
    return Block(
        "Distributions", SPREAD_COLUMNS, rows, f"Gap: end of a call to the stream's next. Think times: {over}."
    )


def _row(
    name: str, values: Spread, text: Callable[[float], str], median: Callable[[float], str] | None = None
) -> tuple[str, ...]:
    if not values.count:
        return (name, "-", "-", "-", "-", "-")
    shown = (median or text)(values.p50)
    return (name, shown, *(text(value) for value in (values.p90, values.p99, values.max, values.mean)))


def _misses(stats: TraceStats) -> Block:
    rows = tuple(
        (CAUSES[miss.cause], count_text(miss.calls), tokens_text(miss.tokens), share_text(miss.share))
        for miss in stats.misses
    )
    return Block(
        "Where an infinite cache misses",
        ("", "calls", "tokens", "share"),
        rows,
        "Near its start: less than half of the stream's previous prompt was kept.",
    )


def _subagents(stats: TraceStats) -> Block:
    agents, total = stats.subagents, max(1, stats.totals.sessions)
    found = (
        f"{agents.sessions_marked} sessions ({share_text(agents.sessions_marked / total)}) mark {agents.marked} "
        f"sub-agents; {agents.unmarked} more and {agents.side_calls} side calls are told from the prompts "
        f"({agents.sessions_any} sessions, {share_text(agents.sessions_any / total)}, have any)."
    )
    rows = (
        _row("sub-agents per session that has any", agents.per_session, count_text, median_text),
        _row("   at once", agents.at_once, count_text, median_text),
        _row("calls per sub-agent", agents.calls, count_text, median_text),
        _row("duration", agents.duration_s, time_text),
        _row("tokens in per call", agents.input_tokens, tokens_text),
        _row("tokens out per call", agents.output_tokens, tokens_text),
    )
    return Block("Sub-agents", SPREAD_COLUMNS, rows, found)


def _warm(stats: TraceStats) -> Block:
    warm = stats.keep_warm
    rows = [(time_text(s), share_text(hit)) for s, hit in zip(warm.survive_s, warm.hit, strict=True)]
    rows.append(("for ever", share_text(stats.ceiling.tokens)))
    return Block("Hit rate if a block survives", ("after its last use", "hit"), tuple(rows))


def _capacity(stats: TraceStats) -> Block:
    curve = stats.capacity
    rows = tuple(
        (tokens_text(tokens), bytes_text(size), share_text(lru), share_text(best))
        for tokens, size, lru, best in zip(curve.tokens, curve.bytes, curve.lru, curve.optimal, strict=True)
    )
    return Block(
        "Hit rate by KV capacity",
        ("tokens", stats.kv.name, "LRU", "optimum"),
        rows,
        f"{at_once_text(stats)}, at recorded times. Optimum: eviction that knows the future.",
    )


def at_once_text(stats: TraceStats) -> str:
    """What shares the cache of the capacity curve."""
    curve, sessions = stats.capacity, stats.totals.sessions
    if curve.lanes == curve.groups:
        return "One session" if sessions == 1 else f"All {count_text(sessions)} sessions at once"
    kind = "session" if curve.groups == sessions else "file"
    return f"{curve.lanes} {kind}{'' if curve.lanes == 1 else 's'} at a time"
