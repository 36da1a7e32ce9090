"""The official harness's theoretical hit rate, by our own count, from the traces it replayed.

It counts blocks of the *trace*, not of the prompts it sends: the ids of a call up to the first that no earlier call of
the same file named, in recorded order, whether or not that earlier call was sent in this run. What a prompt has behind
its last whole block is left out above and below the line, and so is what a chat template adds. Calls that were sent and
answered count, those of the warm-up do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from samovar.base.errors import TraceError
from samovar.workload.reuse import find_reuse
from samovar.workload.weka import WekaFile, WekaRow

SLACK_S = 1e-6
"""Of the harness, when it compares times."""

Place = tuple[str, int, int | None]
"""Trace id, row of the file, and row in a sub-agent's."""


@dataclass(frozen=True, slots=True)
class BlockHits:
    hit_blocks: int
    blocks: int

    @property
    def rate(self) -> float | None:
        return self.hit_blocks / self.blocks if self.blocks else None


def count_hits(places: Iterable[Place], hits: Mapping[Place, BlockHits]) -> BlockHits | None:
    """Over the calls at `places`. None when one of them is not in the traces: they are not those replayed."""
    found = [hits.get(place) for place in places]
    known = [one for one in found if one is not None]
    if not found or len(known) < len(found):
        return None
    return BlockHits(sum(one.hit_blocks for one in known), sum(one.blocks for one in known))


def read_hits(path: Path) -> dict[Place, BlockHits]:
    """Of every call in a trace file, or in those of a folder. Raises TraceError."""
    hits: dict[Place, BlockHits] = {}
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        try:
            trace = msgspec.json.decode(file.read_bytes(), type=WekaFile)
        except OSError as error:
            raise TraceError(f"cannot read {file}: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise TraceError(f"{file}: not a session file: {error}") from error
        hits |= trace_hits(trace, trace.id or file.stem)
    return hits


def trace_hits(trace: WekaFile, trace_id: str) -> dict[Place, BlockHits]:
    calls = sorted(_calls(trace), key=lambda call: call[:3])
    reuse = find_reuse([np.asarray(row.hash_ids or (), dtype=np.int64) for *_, row in calls])
    return {
        (trace_id, outer, inner if nested else None): BlockHits(int(found), len(row.hash_ids or ()))
        for (_, outer, inner, nested, row), found in zip(calls, reuse.hit_blocks, strict=True)
    }


def _calls(trace: WekaFile) -> Iterator[tuple[float, int, int, bool, WekaRow]]:
    """Start, row, row in a sub-agent's, whether there is one, and the call. Times before a sub-agent's marker are
    relative to it; a sub-agent before the main agent's first call is not replayed."""
    begun = False
    for outer, row in enumerate(trace.requests):
        if row.type != "subagent":
            begun = True
            yield row.t, outer, 0, False, row
            continue
        for inner, call in enumerate(row.requests or ()) if begun else ():
            relative = call.t + SLACK_S < row.t
            yield row.t + call.t if relative else call.t, outer, inner, True, call
