"""Which calls of a flat list belong to one conversation, and how conversations of a session hang together.

A trace often lists the calls of several agents in one row of requests. Two calls belong together when the later one's
prompt continues the earlier one's; block ids are prefix-chained, so one id tells. Where a conversation is cut (its
context was compacted, or a message edited), nothing continues the old one afterwards, and the new one takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from samovar.workload.session import Role, Stream, Turn, common_prefix

ROUNDING_S = 1.0
"""Traces round times to a second: what seems to begin up to this much before something ended began after it."""
SEAM_S = 3600.0
SEAM_SHARE = 0.5
"""A cut conversation goes on in a new one that begins within SEAM_S, or that keeps SEAM_SHARE of the shorter."""
AUX_TOKENS = 16_384
AUX_SHARE = 0.1
"""A conversation of one call is a side call when it asks another model, or its prompt is shorter than both say."""


@dataclass(slots=True)
class _Chain:
    turns: list[Turn] = field(default_factory=list)

    @property
    def last(self) -> Turn:
        return self.turns[-1]

    @property
    def begins_s(self) -> float:
        return self.turns[0].start_s


def split_conversations(turns: Sequence[Turn], block_tokens: int, min_blocks: int = 1) -> list[list[Turn]]:
    """`turns` in order of start, as lists of calls of which each continues the one before, same model, not begun
    before that ended. A call continues one of at least `min_blocks` full blocks, the longest there is."""
    chains: list[_Chain] = []
    tails: dict[int, list[_Chain]] = {}
    for turn in turns:
        chain = _continued(turn, tails, min_blocks)
        if chain is None:
            chain = _Chain()
            chains.append(chain)
        else:
            tails[_tail_id(chain.last, block_tokens)].remove(chain)
        chain.turns.append(turn)
        if turn.input_tokens >= block_tokens and len(turn.blocks):
            tails.setdefault(_tail_id(turn, block_tokens), []).append(chain)
    return [chain.turns for chain in chains]


def _tail_id(turn: Turn, block_tokens: int) -> int:
    """The last full block: a partial one is cut anew by every call."""
    return int(turn.blocks[min(len(turn.blocks), turn.input_tokens // block_tokens) - 1])


def _continued(turn: Turn, tails: dict[int, list[_Chain]], min_blocks: int) -> _Chain | None:
    for block in turn.blocks[max(0, min_blocks - 1) :][::-1].tolist():
        for chain in reversed(tails.get(block, ())):
            if chain.last.model == turn.model and chain.last.end_s <= turn.start_s + ROUNDING_S:
                return chain
    return None


def join_seams(conversations: Sequence[list[Turn]]) -> list[list[Turn]]:
    """Conversations of one session in order of their beginning, the cut ones joined to what took their place."""
    joined: list[list[Turn]] = []
    for turns in sorted(conversations, key=lambda turns: turns[0].start_s):
        before = _cut_by(turns, joined)
        if before is None:
            joined.append(list(turns))
        else:
            before.extend(turns)
    return joined


def _cut_by(turns: list[Turn], earlier: Sequence[list[Turn]]) -> list[Turn] | None:
    """The conversation that ended before `turns` began and went on in it: the one with most in common, the latest of
    equals."""
    first = turns[0]
    best: tuple[int, float] | None = None
    found = None
    for candidate in earlier:
        last = candidate[-1]
        gap_s = first.start_s - last.end_s
        if last.model != first.model or gap_s < -ROUNDING_S or last.start_s > first.start_s:
            continue
        shared = common_prefix(last.blocks, first.blocks)
        near = shared >= SEAM_SHARE * min(len(last.blocks), len(first.blocks))
        if shared and (near or gap_s <= SEAM_S) and (best is None or (shared, last.end_s) >= best):
            best, found = (shared, last.end_s), candidate
    return found


def unmarked_streams(turns: Sequence[Turn], block_tokens: int, main_name: str = "main") -> list[Stream]:
    """The streams in a flat list of a session's calls: the one that takes most tokens is the main agent, first."""
    conversations = join_seams(split_conversations(turns, block_tokens))
    weights = [sum(turn.input_tokens for turn in turns) for turns in conversations]
    largest = weights.index(max(weights))
    main = Stream(main_name, "main", tuple(conversations.pop(largest)))
    streams = [main]
    peak = max(turn.input_tokens for turn in main.turns)
    for number, calls in enumerate(conversations, 1):
        role: Role = "aux" if _is_side_call(calls, main, peak) else "subagent"
        stream = Stream(f"{'side' if role == 'aux' else 'unmarked'}-{number:03}", role, tuple(calls))
        streams.append(place(stream, main, stream.end_s, waited_for=role == "subagent"))
    return streams


def _is_side_call(calls: Sequence[Turn], main: Stream, peak_tokens: int) -> bool:
    if len(calls) > 1:
        return False
    small = calls[0].input_tokens < max(AUX_TOKENS, AUX_SHARE * peak_tokens)
    return small or all(calls[0].model != turn.model for turn in main.turns)


def place(stream: Stream, parent: Stream, end_s: float, *, waited_for: bool) -> Stream:
    """`stream` hung below `parent` by its times: spawned by the last turn that had ended when it began, joined by the
    first turn that began after `end_s`, unless nobody waits for it."""
    spawn = join = None
    for index, turn in enumerate(parent.turns):
        if turn.end_s <= stream.start_s + ROUNDING_S and turn.start_s <= stream.start_s:
            spawn = index
        if join is None and turn.start_s >= end_s - ROUNDING_S and turn.start_s > stream.start_s:
            join = index
    if join is not None and spawn is not None and join <= spawn:
        join = None
    return replace(stream, parent=parent.id, spawn_turn=spawn, join_turn=join if waited_for else None)
