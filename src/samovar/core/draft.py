"""A plan while it is being written."""

from __future__ import annotations

from dataclasses import dataclass, field

from samovar.base.ids import BlockId
from samovar.core.board import Board, InFlight
from samovar.core.plan import Chunk, Compare, Load, Move, Start, StepPlan
from samovar.core.state import RequestState


@dataclass(slots=True)
class Grant:
    """Prefill tokens given to a request in this step."""

    state: RequestState
    start: int
    num_tokens: int = 0


@dataclass(slots=True)
class Draft:
    step: int
    budget: int
    reserved_blocks: int
    """Blocks that admitted prefills and loads still need to finish their prompts."""
    chunks: list[Chunk] = field(default_factory=list)
    states: list[RequestState] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    pending: list[tuple[RequestState, int, BlockId]] = field(default_factory=list)
    no_room: list[RequestState] = field(default_factory=list)
    """Waiting requests that did not fit, in the order they were looked at."""
    behind: list[RequestState] = field(default_factory=list)
    """Waiting requests that let warm ones go first (`core.warm_first`)."""
    full: bool = False
    """A request that was passed over too often has reserved whatever room comes up."""
    had_prefill: bool = False
    moves: tuple[Move, ...] = ()
    compares: tuple[Compare, ...] = ()

    def add_chunk(self, state: RequestState, start: int, num_tokens: int, samples: bool, sampled_in: int) -> None:
        """Write a chunk, with the request's start if the runner does not know it and the blocks it has not seen."""
        blocks = state.blocks
        sent = state.num_sent_blocks
        if sent == 0:
            self.starts.append(Start(state.id, bytes(state.data), state.num_prompt, state.request.sampling))
        new: tuple[tuple[BlockId, ...], ...] = (tuple(blocks[sent:]),) if len(blocks) > sent else ()
        state.num_sent_blocks = len(blocks)
        state.holding.last_step = self.step
        self.chunks.append(Chunk(state.id, start, num_tokens, new, samples, sampled_in))
        self.states.append(state)

    def finish(self, board: Board, now: float) -> StepPlan | None:
        """Close the plan and put it in flight; None when there is nothing to do."""
        if not (self.chunks or self.loads or board.stores or self.moves or self.compares):
            return None
        redirects = tuple(
            redirect for state, incarnation, redirect in board.redirects if board.is_current(state, incarnation)
        )
        plan = StepPlan(
            step=self.step,
            chunks=tuple(self.chunks),
            starts=tuple(self.starts),
            redirects=redirects,
            loads=tuple(self.loads),
            stores=tuple(board.stores),
            moves=self.moves,
            compares=self.compares,
            released=tuple(board.released),
        )
        board.redirects, board.stores, board.released = [], [], []
        board.next_step += 1
        incarnations = [state.incarnation for state in self.states]
        prefill = sum(grant.num_tokens for grant in self.grants)
        decodes = len(self.chunks) - len(self.grants)
        board.inflight.append(
            InFlight(self.step, plan.chunks, self.states, incarnations, self.pending, now, prefill, decodes)
        )
        return plan
