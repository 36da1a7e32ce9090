"""Breakdowns of the measured requests: by role, turn, context length and what the cache had."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from samovar.workload.metrics import Group, percentile, ratio, spread, total
from samovar.workload.metrics_record import RequestRecord

TURN_BOUNDS = (1, 5, 10, 20, 50, 100)

ROLES = {"main": "main agent", "subagent": "sub-agent", "aux": "side call"}

HIT_CLASSES = {
    "whole": "as much as an infinite cache",
    "part": "a part of it",
    "lost": "nothing of it",
    "cold": "nothing to find",
    "unknown": "server does not say",
}


def breakdowns(records: Iterable[RequestRecord]) -> dict[str, tuple[Group, ...]]:
    """Title of each table to its rows, in a fixed order; only rows that have requests."""
    measured = [r for r in records if r.phase == "profile"]
    return {
        "role": _table(measured, lambda r: ROLES[r.role]),
        "turn of the agent": _table(measured, lambda r: _turns(r.turn)),
        "context length": _table(measured, lambda r: _context(r.planned_prompt_tokens)),
        "cache": _table(measured, lambda r: HIT_CLASSES[r.hit_class] if r.status == "ok" else "no answer"),
    }


def _table(records: Sequence[RequestRecord], name: Callable[[RequestRecord], str]) -> tuple[Group, ...]:
    members: dict[str, list[RequestRecord]] = {}
    for record in records:
        members.setdefault(name(record), []).append(record)
    order = {text: at for at, text in enumerate((*ROLES.values(), *HIT_CLASSES.values()))}
    names = sorted(members, key=lambda text: (order.get(text, len(order)), _first_number(text)))
    return tuple(_group(text, members[text]) for text in names)


def _group(name: str, records: Sequence[RequestRecord]) -> Group:
    ok = [r for r in records if r.status == "ok"]
    prompt = sum(r.prompt_tokens for r in ok)
    planned = sum(r.planned_prompt_tokens for r in ok)
    cached = total(r.cached_tokens for r in ok)
    ttft = spread(r.ttft_s for r in ok)
    return Group(
        name=name,
        requests=len(records),
        failed=len(records) - len(ok),
        ttft_p50_s=ttft.p50,
        ttft_p90_s=ttft.p90,
        full_itl_p90_s=percentile([v for r in ok if (v := r.full_itl_s) is not None], 90),
        hit_rate=ratio(cached, prompt),
        hit_ceiling=ratio(total(r.ceiling_tokens for r in ok), planned),
        computed_tokens=prompt - cached if cached is not None else None,
        output_tokens=sum(r.output_tokens for r in ok),
    )


def _turns(turn: int) -> str:
    """`turn` counts from 0, the names from 1."""
    number = turn + 1
    low = 1
    for bound in TURN_BOUNDS:
        if number <= bound:
            return f"{low}" if low == bound else f"{low} to {bound}"
        low = bound + 1
    return f"{low} and later"


def _context(tokens: int) -> str:
    low, high = 0, 1024
    while tokens > high:
        low, high = high, 2 * high
    return f"{low // 1024}K to {high // 1024}K"


def _first_number(text: str) -> int:
    digits = ""
    for character in text:
        if not character.isdigit():
            break
        digits += character
    return int(digits or 0)
