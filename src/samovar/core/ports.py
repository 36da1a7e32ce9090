"""What the core and the doors need from the rest, as protocols. Others implement them; only `cli` introduces them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from samovar.base.ids import BlockKey, RequestId, TransferId
from samovar.core.events import Output
from samovar.core.plan import Move, StepPlan, StepResult, TransferDone
from samovar.core.request import Request
from samovar.core.stats import CacheReport, EngineStats, TierReport
from samovar.policy.hints import Hint, HintAnswer


class Ticket(Protocol):
    """A submitted plan. Tickets of one runner complete in the order of submission."""

    def done(self) -> bool: ...

    def result(self) -> StepResult:
        """Blocks until the step ended. Never raises: a failed step is a result with `error` set."""
        ...


class Runner(Protocol):
    """Executes plans. `submit` returns at once; plans run in order."""

    def submit(self, plan: StepPlan) -> Ticket: ...

    def transfers(self) -> Sequence[TransferDone]:
        """Loads and stores that ended since the last call."""
        ...


class TierShare(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive blocks of a match that lie in one tier."""

    tier: str
    num_blocks: int
    seconds: float
    """Estimated time until they would be on the device, after those before them."""
    probe_blocks: int = 0
    """So many of them are worth loading though computing is estimated to be faster: the estimate is a guess."""


class TierMatch(msgspec.Struct, frozen=True, array_like=True):
    """What the tiers say of the blocks after a device hit."""

    shares: tuple[TierShare, ...] = ()
    """In the order of the keys, from the first one asked for, without a gap. () is a miss."""
    asked: bool = False
    """True: the answer is not known yet and comes later; `deadline_s` from now it is a miss."""
    deadline_s: float = 0.0

    @property
    def num_blocks(self) -> int:
        return sum(share.num_blocks for share in self.shares)


class PrefixMatch(msgspec.Struct, frozen=True, array_like=True):
    """How much of a prompt would be found, were it submitted now."""

    num_cached_tokens: int
    """Those of a block that is being computed just now are among them: whoever comes now waits for it."""
    tiers: dict[str, int]
    """The same by where they are."""


class Reserved(msgspec.Struct, frozen=True, array_like=True):
    """Slots of the host tier for a transfer, one per block that takes part. Pinned until it is reported."""

    slots: tuple[int, ...] = ()
    generations: tuple[int, ...] = ()
    from_disk: int = 0
    """Of a load: how many of its last blocks have to be read from disk first."""


class Connector(Protocol):
    """The scheduler's half of the tiers below the device: pure, answers from memory at once. The worker's half moves
    bytes (`Mover`). Keys are always consecutive blocks of one chain; `parent` is the key before the first of them, b""
    at a chain's start."""

    def lookup(self, keys: Sequence[BlockKey], now: float) -> TierMatch:
        """Changes nothing but what a later answer to an "asked" needs."""
        ...

    def load(self, transfer_id: TransferId, keys: Sequence[BlockKey], now: float) -> Reserved:
        """The core will load these. May be fewer than `keys`, down to none, when slots ran out since the look-up."""
        ...

    def store(
        self, transfer_id: TransferId, keys: Sequence[BlockKey], parent: BlockKey, stream: str, now: float
    ) -> tuple[tuple[int, ...], Reserved]:
        """These blocks are computed on the device. Answers which of them to store, as positions in `keys`, and where;
        ((), Reserved()) for none."""
        ...

    def moves(self, now: float) -> Sequence[Move]:
        """What the tiers want moved among themselves; each is handed out once, with the next plan."""
        ...

    def transferred(self, done: TransferDone, now: float) -> None:
        """A load, store or move ended. Called for every transfer, also when its request is gone."""
        ...

    def restore_s(self, key: BlockKey) -> float | None:
        """Estimated seconds to read this one block, None when no tier has it. Asked for every victim considered."""
        ...

    def wanted(self, keys: Sequence[BlockKey], now: float) -> None:
        """A chain is expected to be asked for soon: what of it lies on disk may come up to the host tier."""
        ...

    def turn_ended(self, stream: str, keys: Sequence[BlockKey], *, keep: bool, now: float) -> None:
        """A turn's full blocks. `keep`: they are to survive a restart; else nobody will want them again. Also told,
        with `keep` False, of the part of a stream's last turn that its next one cut off."""
        ...

    def distrust(self, keys: Sequence[BlockKey], now: float) -> None:
        """What the tiers gave for these differs from what was computed: nobody may get it again."""
        ...

    @property
    def wake_at(self) -> float | None:
        """When `moves` may have something though nothing happened before."""
        ...

    def report(self) -> tuple[TierReport, ...]: ...

    def blocks_of(self, keys: Sequence[BlockKey]) -> dict[str, int]:
        """How many leading blocks of a chain each tier has."""
        ...

    def check(self) -> None:
        """Recompute every invariant from scratch; raises AssertionError."""
        ...


class Mover(Protocol):
    """The worker's half of the tiers, one per rank: moves bytes in threads of its own. Every transfer given to `start`
    is reported by `done` exactly once, within a bounded time, whatever fails."""

    def start(self, plan: StepPlan) -> None:
        """Begins the plan's loads, stores and moves; returns at once. From the thread that submits plans."""
        ...

    def done(self) -> Sequence[TransferDone]:
        """Transfers that ended since the last call."""
        ...

    def close(self) -> None: ...


class EngineInfo(msgspec.Struct, frozen=True):
    """What the engine settled at start; the front end builds requests from it."""

    max_model_len: int
    block_tokens: int
    """Tokens per block, across DCP ranks: the unit of block keys."""
    num_blocks: int
    namespace: bytes
    """First field of every root key."""
    max_num_seqs: int
    max_num_batched_tokens: int
    vocab_size: int
    dtype: str = ""
    device: str = ""
    settings: dict[str, str] = {}
    """Every resolved option by its flag name, for the log, `/metrics` and result files."""


@runtime_checkable
class Answered(Protocol):
    """What `Service.submit` returns is this, too, when the request had hints."""

    @property
    def hints(self) -> tuple[HintAnswer, ...]:
        """The verdict's: one for each of the request's hints, in order."""
        ...


class Service(Protocol):
    """An engine as a door sees it."""

    @property
    def info(self) -> EngineInfo: ...

    async def submit(self, request: Request) -> AsyncIterator[Output]:
        """Waits for the core's verdict (raising what it was refused with), then hands out the outputs; the iterator
        ends after the output that has `finish` set. If the engine dies it ends with an ERROR output at once."""
        ...

    def finish(self, request_id: RequestId, num_tokens: int) -> None:
        """Ends a request from outside (stop string, disconnect), keeping `num_tokens` output tokens. Idempotent."""
        ...

    async def stats(self) -> EngineStats: ...

    async def match(self, keys: bytes, num_tokens: int) -> PrefixMatch:
        """What the cache has of a prompt of `num_tokens` whose full blocks have `keys` (16 bytes each, in one string).
        Changes nothing there: no counter, no order of eviction."""
        ...

    async def hint(self, tenant: str, session_id: str, actions: tuple[Hint, ...]) -> tuple[HintAnswer, ...]:
        """Hints on a session of a tenant, whose times count from now; one answer per action, in order."""
        ...

    def outcome(self, request_id: RequestId, reason: str, tools: tuple[str, ...]) -> None:
        """How an answer ended, once its text was read: "tool_calls" with the tools' names, "stop", "length". For the
        retention policy alone; unknown ids are ignored."""
        ...

    async def cache_report(self) -> CacheReport: ...

    @property
    def dead(self) -> str | None:
        """Why the engine is gone, or None."""
        ...

    async def wait_dead(self) -> str:
        """Returns why, once the engine is gone. Cancelling it has no effect on the engine."""
        ...
