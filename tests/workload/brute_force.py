"""Figures of traces computed the plain way: straight from the JSON, block by block, sharing no code with samovar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
import json
from pathlib import Path
from statistics import mean, median
from typing import Any


@dataclass(frozen=True)
class Access:
    """A prompt in a small made-up trace: ids that are equal name equal prefixes."""

    start_s: float
    end_s: float
    ids: tuple[int, ...]
    tokens: int
    block: int = 4


def tokens_in(access: Access, blocks: int) -> int:
    return min(blocks * access.block, access.tokens)


def infinite_hits(accesses: Sequence[Access]) -> list[int]:
    seen: set[int] = set()
    hits = []
    for access in accesses:
        count = 0
        while count < len(access.ids) and access.ids[count] in seen:
            count += 1
        hits.append(tokens_in(access, count))
        seen.update(access.ids)
    return hits


def keep_warm_hits(accesses: Sequence[Access], survive_s: float) -> int:
    used: dict[int, float] = {}
    total = 0
    for access in accesses:
        count = 0
        for block in access.ids:
            if block not in used or max(0.0, access.start_s - used[block]) > survive_s:
                break
            count += 1
        total += tokens_in(access, count)
        for block in access.ids:
            used[block] = access.end_s
    return total


def lru_hits(accesses: Sequence[Access], capacity_blocks: int) -> int:
    """One block after the other leaves: the one used longest ago, of those the deepest."""
    cache: dict[int, tuple[int, int]] = {}
    total = 0
    for now, access in enumerate(accesses):
        count = 0
        while count < len(access.ids) and access.ids[count] in cache:
            count += 1
        total += tokens_in(access, count)
        for depth, block in enumerate(access.ids):
            cache[block] = (now, -depth)
        while len(cache) > capacity_blocks:
            del cache[min(cache, key=lambda block: cache[block])]
    return total


def belady_hits(accesses: Sequence[Access], capacity_blocks: int) -> int:
    """Keeps the blocks that are needed soonest; of equals the shallowest."""
    cache: dict[int, int] = {}
    total = 0
    for now, access in enumerate(accesses):
        count = 0
        while count < len(access.ids) and access.ids[count] in cache:
            count += 1
        total += tokens_in(access, count)
        cache.update({block: depth for depth, block in enumerate(access.ids)})

        def needed(block: int, now: int = now) -> float:
            return next((at for at in range(now + 1, len(accesses)) if block in accesses[at].ids), float("inf"))

        order = sorted(cache, key=lambda block: (needed(block), cache[block]))
        cache = {block: cache[block] for block in order[:capacity_blocks] if needed(block) < float("inf")}
    return total


def best_hits(accesses: Sequence[Access], capacity_blocks: int) -> int:
    """The most that any leaf-first eviction can hit, in blocks, by trying all of them."""
    states: dict[frozenset[int], int] = {frozenset(): 0}
    parents: dict[int, int | None] = {}
    for access in accesses:
        for depth, block in enumerate(access.ids):
            parents[block] = access.ids[depth - 1] if depth else None
        following: dict[frozenset[int], int] = {}
        for state, score in states.items():
            count = 0
            while count < len(access.ids) and access.ids[count] in state:
                count += 1
            for kept in _closed_subsets(state | set(access.ids), parents, capacity_blocks):
                following[kept] = max(following.get(kept, -1), score + count)
        states = following
    return max(states.values())


def _closed_subsets(
    blocks: set[int] | frozenset[int], parents: dict[int, int | None], limit: int
) -> set[frozenset[int]]:
    found = {frozenset[int]()}
    frontier = set(found)
    while frontier:
        grown = set()
        for subset in frontier:
            for block in blocks - subset:
                parent = parents[block]
                if len(subset) < limit and (parent is None or parent in subset):
                    grown.add(subset | {block})
        frontier = grown - found
        found |= frontier
    return found


@dataclass
class FileFigures:
    name: str
    calls: int = 0
    main_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    hit_tokens: int = 0
    hit_blocks: int = 0
    blocks: int = 0
    distinct_blocks: int = 0
    peak: int = 0
    sub_agents: int = 0
    prefix: int = 0
    first: int = 0
    inputs: list[int] | None = None
    outputs: list[int] | None = None
    apis: list[float] | None = None
    inner: list[int] | None = None


def file_figures(path: Path) -> FileFigures:
    value: dict[str, Any] = json.loads(path.read_text())
    calls: list[dict[str, Any]] = []
    figures = FileFigures(path.stem, inner=[])
    figures.prefix = value["tool_tokens"] + value["system_tokens"]
    figures.first = value["requests"][0]["in"]
    for row in value["requests"]:
        if row["type"] == "subagent":
            figures.sub_agents += 1
            calls += row["requests"]
            assert figures.inner is not None
            figures.inner.append(len(row["requests"]))
        else:
            figures.main_calls += 1
            calls.append(row)
    # An infinite cache misses each block once, whoever comes first; how the calls interleave does not matter.
    seen: set[int] = set()
    for call in calls:
        found = 0
        for block in call["hash_ids"]:
            if block not in seen:
                break
            found += 1
        seen.update(call["hash_ids"])
        figures.hit_blocks += found
        figures.hit_tokens += min(found * value["block_size"], call["in"])
        figures.blocks += len(call["hash_ids"])
        figures.peak = max(figures.peak, call["in"] + call["out"])
    figures.calls = len(calls)
    figures.distinct_blocks = len(seen)
    figures.inputs = [call["in"] for call in calls]
    figures.outputs = [call["out"] for call in calls]
    figures.input_tokens, figures.output_tokens = sum(figures.inputs), sum(figures.outputs)
    figures.apis = [call["api_time"] for call in calls if "api_time" in call]
    return figures


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def summary(values: Sequence[float]) -> tuple[float, float, float, float, float]:
    return median(values), percentile(values, 0.9), percentile(values, 0.99), max(values), mean(values)
