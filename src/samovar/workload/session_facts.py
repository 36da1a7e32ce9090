"""What is kept of a session for the statistics once its block ids are gone."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from samovar.workload.load import Load
from samovar.workload.session import SessionTree, Stream


@dataclass(frozen=True, slots=True)
class SessionFacts:
    calls: int
    main_turns: int
    output_tokens: int
    peak_tokens: int
    duration_s: float
    prefix_tokens: int
    """Tool definitions and system prompt of the main agent."""
    digest: bytes
    """Equal for exact copies."""
    marked: int
    unmarked: int
    side_calls: int
    agents_at_once: int
    agent_calls: tuple[int, ...]
    agent_lengths_s: tuple[float, ...]
    agent_inputs: tuple[int, ...]
    agent_outputs: tuple[int, ...]
    gaps_s: tuple[float, ...]
    think_after_tool_s: tuple[float, ...]
    think_after_text_s: tuple[float, ...]
    api_s: tuple[float, ...]
    outputs: tuple[int, ...]
    """In the order of `SessionTree.calls`, as `later`."""
    later: tuple[bool, ...]
    """Whether the call is not its stream's first."""


@dataclass(slots=True)
class FactsTable:
    """Facts of all sessions, with the numbers their calls have in the load."""

    rows: list[SessionFacts] = field(default_factory=list)
    first_calls: list[int] = field(default_factory=list)
    later_calls: list[int] = field(default_factory=list)
    output_tokens: list[int] = field(default_factory=list)

    def add(self, facts: SessionFacts, calls: NDArray[np.int64]) -> None:
        self.rows.append(facts)
        numbers = calls.tolist()
        self.first_calls.append(numbers[0])
        self.later_calls += [number for number, later in zip(numbers, facts.later, strict=True) if later]
        self.output_tokens += facts.outputs

    def first_misses(self, load: Load) -> list[int]:
        """Per session, tokens that its first call had to compute."""
        missed: list[int] = (load.input_tokens - load.hit_tokens)[np.array(self.first_calls)].tolist()
        return missed


def facts_of(session: SessionTree) -> SessionFacts:
    calls = list(session.calls())
    agents = [stream for stream in session.streams if stream.role == "subagent"]
    stated = [
        (turn.think_time_s, "tool_result" in turn.input_types)
        for stream in session.streams
        for turn in stream.turns[1:]
        if turn.think_time_s is not None
    ]
    return SessionFacts(
        calls=len(calls),
        main_turns=len(session.main.turns),
        output_tokens=sum(call.turn.output_tokens for call in calls),
        peak_tokens=max(call.turn.input_tokens + call.turn.output_tokens for call in calls),
        duration_s=session.duration_s,
        prefix_tokens=session.tool_tokens + session.system_tokens,
        digest=_digest(session),
        marked=sum(stream.marked for stream in agents),
        unmarked=sum(not stream.marked for stream in agents),
        side_calls=sum(stream.role == "aux" for stream in session.streams),
        agents_at_once=_at_once(agents),
        agent_calls=tuple(len(stream.turns) for stream in agents),
        agent_lengths_s=tuple(stream.end_s - stream.start_s for stream in agents),
        agent_inputs=tuple(turn.input_tokens for stream in agents for turn in stream.turns),
        agent_outputs=tuple(turn.output_tokens for stream in agents for turn in stream.turns),
        gaps_s=tuple(stream.gap_s(at) for stream in session.streams for at in range(1, len(stream.turns))),
        think_after_tool_s=tuple(value for value, tool in stated if tool),
        think_after_text_s=tuple(value for value, tool in stated if not tool),
        api_s=tuple(call.turn.api_time_s for call in calls if call.turn.api_time_s is not None),
        outputs=tuple(call.turn.output_tokens for call in calls),
        later=tuple(call.turn_index > 0 for call in calls),
    )


def _at_once(streams: list[Stream]) -> int:
    """The most that ran at the same time."""
    edges = sorted([(s.start_s, 1) for s in streams] + [(s.end_s, -1) for s in streams])
    return int(np.cumsum([step for _, step in edges]).max()) if edges else 0


def _digest(session: SessionTree) -> bytes:
    """Over times and lengths, not names: copies under another id have the same."""
    found = blake2b(digest_size=16)
    for stream in session.streams:
        for turn in stream.turns:
            found.update(np.array([turn.start_s, turn.input_tokens, turn.output_tokens, len(turn.blocks)]).tobytes())
    return found.digest()
