"""Everything the parts of the core share about live requests: where each stands, and what is in flight."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from math import inf

from samovar.base.ids import BlockId, BlockKey, RequestId, TransferId
from samovar.core.ceiling import Ceiling
from samovar.core.config import EngineConfig
from samovar.core.gate import PrefillRate
from samovar.core.kv_manager import KVManager
from samovar.core.plan import Chunk, Compare, Redirect, Store
from samovar.core.ports import Connector, TierShare
from samovar.core.state import Holding, RequestState, Status
from samovar.core.streams import Streams
from samovar.core.tenant_queues import TenantQueues
from samovar.core.timetable import Timetable
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
    planned_s: float = 0.0
    num_prefill_tokens: int = 0
    num_decodes: int = 0


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
    stream: str = ""
    """For whom."""
    shares: tuple[TierShare, ...] = ()
    """Where a load comes from; they may cover more than its keys."""
    deadline_s: float = 0.0
    """When a load's request stops waiting for it."""
    given_up: bool = False
    """Nobody waits for it any more."""
    late: bool = False
    """It was given up before it was reported, and is counted as failed."""
    compares: bool = False
    """Neither: blocks of the device are compared (`core.verify`)."""


@dataclass(slots=True)
class Suspect:
    """Loaded blocks that wait for the same ones to be computed (`core.verify`)."""

    state: RequestState
    incarnation: int
    first: int
    """Position of the first of them in the block table."""
    keys: tuple[BlockKey, ...]
    holding: Holding


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
    failed_load_reasons: Counter[str] = field(default_factory=Counter)
    wasted_load_blocks: int = 0
    declined_load_blocks: int = 0
    prefetched_blocks: int = 0
    ceiling_tokens: int = 0
    saved_s: float = 0.0
    unpriced_tokens: int = 0
    """Cached, and not in `saved_s` yet, since no prefill was measured before."""
    verified_blocks: int = 0
    differing_blocks: int = 0
    hints: Counter[str] = field(default_factory=Counter)
    misses: Counter[str] = field(default_factory=Counter)
    missed_tokens: Counter[str] = field(default_factory=Counter)


class Board:
    """Owned by the engine, passed to its parts. `requests` has every live request; each stands in exactly one of
    `queues` (waiting or prefilling), `loading` and `decoding`."""

    __slots__ = (
        "ceiling", "compares", "config", "connector", "counters", "decoding", "inflight", "kv", "last_applied_s",
        "loading", "loading_keys", "next_seq", "next_step", "next_transfer", "num_loads", "num_prefilling",
        "planned_s", "policy", "prefetches", "prefill_rate", "queues", "recent", "redirects", "released", "requests",
        "retain_budget", "stores", "streams", "suspects", "transfers", "unproven",
    )  # fmt: skip

    def __init__(self, config: EngineConfig, policy: RetentionPolicy, connector: Connector | None = None) -> None:
        self.config = config
        self.policy = policy
        self.connector = connector
        self.kv = KVManager(config.num_blocks, config.block_tokens, policy, self._restore_s, self._evicted)
        self.requests: dict[RequestId, RequestState] = {}
        self.queues = TenantQueues(quantum=config.max_num_batched_tokens)
        self.decoding: dict[RequestId, RequestState] = {}
        self.loading: dict[RequestId, RequestState] = {}
        self.num_prefilling = 0
        self.inflight: deque[InFlight] = deque()
        self.transfers: dict[TransferId, Transfer] = {}
        self.loading_keys: Counter[BlockKey] = Counter()
        self.streams = Streams()
        self.recent: OrderedDict[RequestId, str] = OrderedDict()
        """Streams of requests that ended lately, for what is told of them later."""
        self.ceiling = Ceiling()
        self.prefill_rate = PrefillRate()
        self.last_applied_s = 0.0
        self.planned_s = -inf
        """When all that waits for a time was last looked at."""
        self.prefetches = Timetable()
        self.retain_budget: int | None = None
        """Blocks of one tenant that `retain` may cover; None until a hint asks."""
        self.num_loads = 0
        self.suspects: list[Suspect] = []
        self.unproven: set[BlockKey] = set()
        """On the device because a tier brought them up, and not used by any request since."""
        self.counters = Counters()
        self.next_seq = 0
        self.next_step = 0
        self.next_transfer = 0
        # For the next plan:
        self.released: list[RequestId] = []
        self.redirects: list[tuple[RequestState, int, Redirect]] = []
        """With the incarnation they are for."""
        self.stores: list[Store] = []
        self.compares: list[Compare] = []

    @property
    def num_admitted(self) -> int:
        return len(self.decoding) + len(self.loading) + self.num_prefilling

    @property
    def num_waiting(self) -> int:
        return len(self.requests) - self.num_admitted

    def reserved_blocks(self) -> int:
        """Blocks that admitted prefills and loads still need: nothing is admitted into them, so they can finish."""
        waiting = [s for s in self.queues if s.status is Status.PREFILLING] if self.num_prefilling else []
        waiting += self.loading.values()
        return sum(max(0, self.kv.blocks_for(s.total) - len(s.blocks)) for s in waiting)

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

    def _restore_s(self, key: BlockKey, depth: int) -> float:
        """Seconds to have a block back: computed again, or read from a tier where that is faster."""
        rate = self.prefill_rate.tokens_per_s
        compute_s = self.config.block_tokens / rate if rate else 1.0
        reload_s = self.connector.restore_s(key) if self.connector is not None else None
        return compute_s if reload_s is None else min(reload_s, compute_s)

    def _evicted(self, keys: list[BlockKey]) -> None:
        if self.unproven:
            self._wasted(self.unproven.intersection(keys))

    def forgot(self) -> None:
        """Blocks went with a step that failed."""
        if self.unproven:
            self._wasted({key for key in self.unproven if self.kv.index.get(key) is None})

    def _wasted(self, keys: set[BlockKey]) -> None:
        self.counters.wasted_load_blocks += len(keys)
        self.unproven -= keys

    @property
    def next_transfer_id(self) -> TransferId:
        """What `new_transfer` will give the next one."""
        return TransferId(self.next_transfer)

    def new_transfer(self, transfer: Transfer) -> TransferId:
        transfer_id = self.next_transfer_id
        self.next_transfer += 1
        transfer.holding.num_transfers += 1
        self.transfers[transfer_id] = transfer
        if transfer.is_load:
            self.loading_keys.update(transfer.keys)
        return transfer_id

    def stop_waiting(self, transfer: Transfer) -> None:
        """Whoever wants a load's blocks need not wait for it any more: it has ended, or takes too long."""
        if transfer.is_load and not transfer.given_up:
            transfer.given_up = True
            self.loading_keys.subtract(transfer.keys)
            for key in transfer.keys:
                if not self.loading_keys[key]:
                    del self.loading_keys[key]

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
        self.streams.check()
        self.prefetches.check()
        running = Counter(s.stream.name for s in self.requests.values() if s.stream is not None)
        assert all(stream.running == running[stream.name] for stream in self.streams.latest())
        assert all(self.kv.index.get(key) is not None for key in self.unproven)
        loading = Counter(k for t in self.transfers.values() if t.is_load and not t.given_up for k in t.keys)
        assert loading == self.loading_keys
