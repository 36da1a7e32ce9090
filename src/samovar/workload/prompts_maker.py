"""From a call of the replay to what is sent: token ids, or the same as units of text, or as messages."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from samovar.workload.prompts import TokenRange, Tokens, TreePrompts, seed_of
from samovar.workload.prompts_history import LiveHistory
from samovar.workload.prompts_text import Conversation, Message
from samovar.workload.replay import Launch
from samovar.workload.session import SessionTree, Stream


@dataclass(slots=True)
class _Visit:
    number: int
    prompts: TreePrompts
    live: LiveHistory | None
    conversations: dict[int, Conversation] = field(default_factory=dict)
    answers: dict[int, int] = field(default_factory=dict)
    """Per stream, tokens of the last answer."""


class PromptMaker:
    """Prompts of one run at one concurrency. Keeps state of the trees that are live, for histories and messages."""

    def __init__(
        self, tokens: TokenRange, *, run: str, point: str, cache_bust: bool = True, live_history: bool = False
    ) -> None:
        """Equal `run` gives equal tokens; `point` keeps the parts of a run from finding each other's sessions in the
        cache, unless `cache_bust` is off."""
        self._tokens = tokens
        self._run = run
        self._point = point
        self._cache_bust = cache_bust
        self._live_history = live_history
        self._visits: dict[int, _Visit] = {}

    def prompt(self, launch: Launch) -> Tokens:
        """int32 [recorded prompt length], at least one token."""
        visit = self._visit(launch)
        turn = launch.call.recorded
        length = max(1, turn.input_tokens)
        tail = seed_of(launch.script.tree.id, launch.call.stream, launch.call.turn)
        if visit.live is not None:
            return visit.live.prompt(launch.call.stream, turn.blocks, length, tail)
        return visit.prompts.prompt(turn.blocks, length, tail)

    def seeds(self, launch: Launch) -> NDArray[np.uint64]:
        """What the blocks of that prompt are made from, for whoever needs to tell prompts apart and no tokens. Only
        without histories made of answers."""
        turn = launch.call.recorded
        tail = seed_of(launch.script.tree.id, launch.call.stream, launch.call.turn)
        return self._visit(launch).prompts.seeds(turn.blocks, max(1, turn.input_tokens), tail)

    def messages(self, launch: Launch, units: Tokens) -> list[Message]:
        """The prompt of `launch` as a conversation."""
        visit = self._visit(launch)
        stream = launch.script.tree.streams[launch.call.stream]
        size = launch.script.tree.block_tokens
        if launch.call.stream not in visit.conversations:
            visit.conversations[launch.call.stream] = Conversation(_system_blocks(stream, size) * size)
        answer = visit.answers.get(launch.call.stream)
        if answer is None:
            answer = stream.turns[launch.call.turn - 1].output_tokens if launch.call.turn else 0
        return visit.conversations[launch.call.stream].messages(units, answer, size)

    def answered(self, launch: Launch, answer: Tokens) -> None:
        """What came back, for histories made of it. A late answer to a tree that is over is dropped."""
        visit = self._visits.get(launch.lane)
        if visit is not None and visit.number == launch.visit and visit.live is not None:
            visit.live.answered(launch.call.stream, answer)
            visit.answers[launch.call.stream] = len(answer)

    def _visit(self, launch: Launch) -> _Visit:
        visit = self._visits.get(launch.lane)
        if visit is None or visit.number != launch.visit:
            tree = launch.script.tree
            prompts = TreePrompts(
                self._tokens,
                scope=seed_of("scope", self._run, tree.namespace),
                marker=seed_of("marker", self._run, self._point, launch.repeat) if self._cache_bust else 0,
                block_tokens=tree.block_tokens,
                system_ids=_system_ids(tree),
            )
            visit = _Visit(launch.visit, prompts, LiveHistory(prompts) if self._live_history else None)
            self._visits[launch.lane] = visit
        return visit


def _system_blocks(stream: Stream, block_tokens: int) -> int:
    return (stream.tool_tokens + stream.system_tokens) // block_tokens


def _system_ids(tree: SessionTree) -> set[int]:
    return {
        int(block)
        for stream in tree.streams
        for block in stream.turns[0].blocks[: _system_blocks(stream, tree.block_tokens)]
    }
