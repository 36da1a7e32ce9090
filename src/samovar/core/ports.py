"""What the core and the doors need from the rest, as protocols. Others implement them; only `cli` introduces them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from samovar.base.ids import BlockKey, RequestId
from samovar.core.events import Output
from samovar.core.plan import StepPlan, StepResult, TransferDone
from samovar.core.request import Request
from samovar.core.stats import EngineStats


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


class TierMatch(msgspec.Struct, frozen=True, array_like=True):
    """What a tier says of the blocks after a device hit."""

    num_blocks: int
    """Consecutive blocks it holds, from the first key asked for."""
    tier: str = ""
    seconds: float = 0.0
    """Estimated time until they would be on the device."""
    asked: bool = False
    """True: the answer is not known yet and comes later; `seconds` is then the deadline after which it is a miss."""


class PrefixMatch(msgspec.Struct, frozen=True, array_like=True):
    """How much of a prompt would be found, were it submitted now."""

    num_cached_tokens: int
    """Those of a block that is being computed just now are among them: whoever comes now waits for it."""
    tiers: dict[str, int]
    """The same by where they are."""


class Connector(Protocol):
    """The scheduler's half of a tier: pure, answers from memory at once. The worker's half moves bytes."""

    def lookup(self, keys: Sequence[BlockKey], now: float) -> TierMatch: ...

    def offers(self, keys: Sequence[BlockKey], now: float) -> Sequence[int]:
        """Which of these computed blocks to store, as positions in `keys`."""
        ...


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

    @property
    def dead(self) -> str | None:
        """Why the engine is gone, or None."""
        ...

    async def wait_dead(self) -> str:
        """Returns why, once the engine is gone. Cancelling it has no effect on the engine."""
        ...
