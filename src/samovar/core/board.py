"""Everything the parts of the core share about live requests: where each stands, and what is in flight."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from samovar.base.ids import BlockId, BlockKey, RequestId, TransferId
from samovar.core.config import EngineConfig
from samovar.core.kv_manager import KVManager
from samovar.core.plan import Chunk, Redirect, Store
from samovar.core.sessions import SessionMemory
from samovar.core.state import Holding, RequestState, Status
from samovar.core.tenant_queues import TenantQueues
from samovar.policy.retention import RetentionPolicy


@dataclass(slots=True)
class InFlight:
    """A plan that was handed out and not applied yet."""

    step: int
    chunks: tuple[Chunk, ...]
    states: list[RequestState]
    """Aligned with `chunks`."""
    incarnations: list[int]
    pending: list[tuple[RequestState, int, BlockId]]
    """Blocks it made findable before they are computed, with the request (and its incarnation) that computes them."""


@dataclass(slots=True)
class Transfer:
    """A load or store that was planned and not reported yet."""

    is_load: bool
    holding: Holding
    keys: tuple[BlockKey, ...]
    state: RequestState | None = None
    incarnation: int = 0
    first: int = 0
    """A load's first position in the block table."""


@dataclass(slots=True)
class Counters:
    """Monotone; `EngineStats` is made of them."""

    steps: int = 0
    step_tokens: int = 0
    prefill_steps: int = 0
    failed_steps: int = 0
    admitted: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    preemptions: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    cached_by_tier: Counter[str] = field(default_factory=Counter)
    shared_tokens: int = 0
    recomputed_tokens: int = 0
    generated_tokens: int = 0
    loaded_blocks: int = 0
    stored_blocks: int = 0
    failed_load_blocks: int = 0
    misses: Counter[str] = field(default_factory=Counter)
    missed_tokens: Counter[str] = field(default_factory=Counter)


class Board:
    """Owned by the engine, passed to its parts. `requests` has every live request; each stands in exactly one of
    `queues` (waiting or prefilling), `loading` and `decoding`."""

    __slots__ = (
        "config", "counters", "decoding", "inflight", "kv", "loading", "loading_keys", "next_seq", "next_step",
        "next_transfer", "num_prefilling", "queues", "redirects", "released", "requests", "sessions", "stores",
        "transfers",
    )  # fmt: skip

    def __init__(self, config: EngineConfig, policy: RetentionPolicy) -> None:
        self.config = config
        self.kv = KVManager(config.num_blocks, config.block_tokens, policy)
        self.requests: dict[RequestId, RequestState] = {}
        self.queues = TenantQueues(quantum=config.max_num_batched_tokens)
        self.decoding: dict[RequestId, RequestState] = {}
        self.loading: dict[RequestId, RequestState] = {}
        self.num_prefilling = 0
        self.inflight: deque[InFlight] = deque()
        self.transfers: dict[TransferId, Transfer] = {}
        self.loading_keys: Counter[BlockKey] = Counter()
        self.sessions = SessionMemory()
        self.counters = Counters()
        self.next_seq = 0
        self.next_step = 0
        self.next_transfer = 0
        # For the next plan:
        self.released: list[RequestId] = []
        self.redirects: list[tuple[RequestState, int, Redirect]] = []
        """With the incarnation they are for."""
        self.stores: list[Store] = []

    @property
    def num_admitted(self) -> int:
        return len(self.decoding) + len(self.loading) + self.num_prefilling

    @property
    def num_waiting(self) -> int:
        return len(self.requests) - self.num_admitted

    def enter(self, state: RequestState, status: Status) -> None:
        """Move a request to where its new status belongs; it must not stand anywhere."""
        state.status = status
        if status is Status.DECODING:
            self.decoding[state.id] = state
        elif status is Status.LOADING:
            self.loading[state.id] = state
        else:
            self.num_prefilling += status is Status.PREFILLING
            self.queues.add(state)

    def leave(self, state: RequestState) -> None:
        if state.status is Status.DECODING:
            del self.decoding[state.id]
        elif state.status is Status.LOADING:
            del self.loading[state.id]
        else:
            self.num_prefilling -= state.status is Status.PREFILLING
            self.queues.remove(state)

    def start_prefill(self, state: RequestState) -> None:
        """A waiting request was admitted; it keeps its place in the queue."""
        assert state.status is Status.WAITING
        state.status = Status.PREFILLING
        self.num_prefilling += 1

    def is_current(self, state: RequestState, incarnation: int) -> bool:
        return self.requests.get(state.id) is state and state.incarnation == incarnation

    def sweep(self, now: float) -> None:
        self.kv.sweep(now, self.inflight[0].step if self.inflight else None)

    def check(self) -> None:
        for state in self.requests.values():
            blocks, bs = len(state.blocks), self.config.block_tokens
            assert state.num_applied <= state.num_computed <= blocks * bs, "computed beyond the table"
            assert state.num_computed <= state.total + self.config.num_speculative_tokens
            assert state.num_indexed * bs <= state.num_computed
            assert state.num_sent_blocks <= blocks
            assert all(self.kv.index.get(state.keys[i]) == state.blocks[i] for i in range(state.num_indexed))
            if state.status is Status.WAITING:
                assert not blocks and not state.num_computed and not state.num_inflight
            if state.status is Status.DECODING:
                assert state.id in self.decoding and (state.remaining <= 1 or self.config.num_speculative_tokens)
        in_queues = {s.id for s in self.queues}
        places = [in_queues, self.decoding.keys(), self.loading.keys()]
        assert sum(len(p) for p in places) == len(self.requests) == len(set().union(*places))
        assert self.num_prefilling == sum(s.status is Status.PREFILLING for s in self.queues)
        assert self.num_admitted <= self.config.max_num_seqs
        self.queues.check()
        self.kv.check(s.blocks for s in self.requests.values())
        loading = Counter(k for t in self.transfers.values() if t.is_load for k in t.keys)
        assert loading == self.loading_keys
