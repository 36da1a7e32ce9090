"""Sessions that do not fit the served context: left out whole, as AgentX does, or cut where they outgrow it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from samovar.base.errors import ConfigError
from samovar.workload.session import SessionTree, Stream, Turn

Fit = Literal["skip", "cut"]


@dataclass(frozen=True, slots=True)
class Fitted:
    trees: tuple[SessionTree, ...]
    skipped: tuple[str, ...]
    """Ids of sessions left out."""
    cut: dict[str, int]
    """Ids of shortened sessions, and how many model calls each lost."""


def peak_tokens(tree: SessionTree) -> int:
    """Largest prompt with its answer."""
    return max(_tokens(turn) for stream in tree.streams for turn in stream.turns)


def _tokens(turn: Turn) -> int:
    """As a replay sends it: no prompt and no answer is empty."""
    return max(1, turn.input_tokens) + max(1, turn.output_tokens)


def fit(trees: Iterable[SessionTree], max_tokens: int, how: Fit) -> Fitted:
    """Raises ConfigError when nothing is left."""
    kept: list[SessionTree] = []
    skipped: list[str] = []
    cut: dict[str, int] = {}
    smallest = 0
    for tree in trees:
        peak = peak_tokens(tree)
        if peak <= max_tokens:
            kept.append(tree)
            continue
        smallest = min(smallest or peak, peak)
        shorter = cut_to(tree, max_tokens) if how == "cut" else None
        if shorter is None:
            skipped.append(tree.id)
        else:
            kept.append(shorter)
            cut[tree.id] = tree.num_turns - shorter.num_turns
    if not kept:
        found = (
            f"none of {len(skipped)} sessions fits the context of {max_tokens} tokens (the smallest needs {smallest})"
        )
        raise ConfigError(
            f"{found}: try --scale {_fitting(max_tokens / smallest)}" if smallest else "no sessions to replay"
        )
    return Fitted(tuple(kept), tuple(skipped), cut)


def cut_to(tree: SessionTree, max_tokens: int) -> SessionTree | None:
    """Each agent ends before the first call that does not fit; sub-agents that then nobody starts go with it. None when
    the main agent's first call does not fit."""
    left: dict[str, int] = {}
    streams: list[Stream] = []
    for stream in tree.streams:
        parent_turns = left.get(stream.parent, 0) if stream.parent is not None else None
        if parent_turns is not None and (parent_turns == 0 or (stream.spawn_turn or 0) >= parent_turns):
            continue
        size = 0
        for turn in stream.turns:
            if _tokens(turn) > max_tokens:
                break
            size += 1
        if size == 0:
            if not streams:
                return None
            continue
        left[stream.id] = size
        joins = stream.join_turn
        if joins is not None and parent_turns is not None and joins >= parent_turns:
            joins = None
        streams.append(replace(stream, turns=stream.turns[:size], join_turn=joins))
    return replace(tree, streams=tuple(streams))


def _fitting(ratio: float) -> str:
    """The next smaller power of two, which keeps whole blocks whole."""
    factor = 1.0
    while factor > ratio:
        factor /= 2
    return f"{factor:g}"
