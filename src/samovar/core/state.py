"""What the core knows of one request while it lives."""

from __future__ import annotations

import enum

from samovar.base.ids import BlockId, BlockKey, RequestId
from samovar.base.keys import KEY_BYTES, TOKEN_BYTES, extend_keys, pack_tokens, split_keys
from samovar.core.events import Miss
from samovar.core.request import Request
from samovar.core.stream import Stream


class Status(enum.Enum):
    WAITING = "waiting"
    """In its tenant's queue without blocks: new, or preempted."""
    LOADING = "loading"
    """Has blocks; a tier is filling some of them."""
    PREFILLING = "prefilling"
    """Has blocks; still in its tenant's queue, since more than its next token is to be computed."""
    DECODING = "decoding"


class Holding:
    """A request's block table and what still touches it. When the request lets go (end, preemption) the blocks stay
    held until no plan in flight names them and no transfer touches them."""

    __slots__ = ("blocks", "last_step", "num_transfers")

    def __init__(self) -> None:
        self.blocks: list[BlockId] = []
        self.last_step = -1
        """The last plan that names the blocks."""
        self.num_transfers = 0


class RequestState:
    """Mutable state of one request. Tokens known by value are `num_tokens`; `num_inflight` more are being sampled by
    plans in flight; `num_computed` positions have KV once those plans ran, `num_applied` have it for certain."""

    __slots__ = (
        "caches",
        "ceiling",
        "data",
        "failures",
        "first_token_seen",
        "held_step",
        "hits_checked",
        "holding",
        "id",
        "incarnation",
        "keys",
        "last_sampled_in",
        "load_failed",
        "loaded_by_tier",
        "lookup_deadline_s",
        "max_tokens",
        "miss",
        "num_applied",
        "num_cached",
        "num_computed",
        "num_indexed",
        "num_inflight",
        "num_known",
        "num_loaded",
        "num_offered",
        "num_output",
        "num_prompt",
        "num_sent_blocks",
        "num_tokens",
        "outcome",
        "passed_over",
        "preempted",
        "request",
        "restore_to",
        "seq",
        "status",
        "stop_tokens",
        "stream",
    )  # fmt: skip

    def __init__(
        self, request: Request, seq: int, block_tokens: int, max_model_len: int, *, caching: bool = True
    ) -> None:
        self.request = request
        self.caches = caching and request.use_prefix_cache
        self.id: RequestId = request.id
        self.seq = seq
        """Order of arrival."""
        self.status = Status.WAITING
        self.data = bytearray(request.token_ids)
        self.num_prompt = len(request.token_ids) // TOKEN_BYTES
        self.num_tokens = self.num_prompt
        self.num_output = 0
        self.max_tokens = min(request.sampling.max_tokens, max_model_len - self.num_prompt)
        self.stop_tokens = frozenset(request.sampling.stop_token_ids)
        self.stream: Stream | None = None
        """Which conversation it continues; from its admission on."""
        self.outcome: tuple[str, tuple[str, ...]] | None = None
        """How it ended and the tools it calls, when that is known before its end is."""
        num_keys = self.num_prompt // block_tokens
        if not self.caches:
            self.keys: list[BlockKey] = []
        elif len(request.keys) == num_keys * KEY_BYTES:
            self.keys = split_keys(request.keys)
        else:
            self.keys = extend_keys(request.root, request.token_ids, block_tokens)

        self.holding = Holding()
        self.num_computed = 0
        self.num_applied = 0
        self.num_inflight = 0
        self.num_offered = 0
        """Leading blocks of the table that were offered to the tiers."""
        self.num_indexed = 0
        """Leading blocks of the table that are the index's own blocks for their keys."""
        self.num_sent_blocks = 0
        """Leading blocks of the table that the runner knows."""
        self.last_sampled_in = -1
        self.incarnation = 0
        """Grows when the request is preempted: results of plans that named an earlier one are dropped."""
        self.preempted = False
        self.passed_over = 0
        self.failures = 0
        self.held_step = -1
        """The plan that last held it back for a sibling or a tier: not a sign of a full device."""
        self.load_failed = False
        self.lookup_deadline_s: float | None = None

        self.first_token_seen = False
        self.hits_checked = False
        self.num_cached = 0
        """Prompt tokens found rather than computed, until the first token."""
        self.num_known = 0
        """Prompt tokens that were in the cache when it arrived: what it was found to have beyond them, and beyond
        `num_loaded`, a sibling computed meanwhile."""
        self.num_loaded = 0
        self.loaded_by_tier: dict[str, int] = {}
        """`num_loaded` by where it came from."""
        self.ceiling = 0
        """Prompt tokens that an infinite cache would have had when it was admitted."""
        self.restore_to = 0
        """After a preemption: positions below this one were computed before."""
        self.miss: Miss | None = None

    @property
    def stream_name(self) -> str:
        return self.stream.name if self.stream is not None else ""

    @property
    def blocks(self) -> list[BlockId]:
        return self.holding.blocks

    @property
    def total(self) -> int:
        """Tokens known or being sampled."""
        return self.num_tokens + self.num_inflight

    @property
    def remaining(self) -> int:
        """Tokens to compute before the next one can be sampled."""
        return self.num_tokens + self.num_inflight - self.num_computed

    @property
    def wants_more(self) -> bool:
        """False once its last token is being sampled."""
        return self.num_output + self.num_inflight < self.max_tokens

    @property
    def order(self) -> tuple[int, bool, int]:
        """Place among the tenant's requests: priority, then preempted ones ahead of their equals, then arrival."""
        return (self.request.priority, not self.preempted, self.seq)

    def hit_limit(self, block_tokens: int) -> int:
        """Blocks that a hit may cover: never the last known token, whose logits are wanted."""
        return min((self.num_tokens - 1) // block_tokens, len(self.keys))

    def wants(self, key: BlockKey, position: int) -> bool:
        """Whether a hit may cover this block at this position of its chain."""
        return position < len(self.keys) and self.keys[position] == key

    def append(self, tokens: tuple[int, ...]) -> None:
        self.data += pack_tokens(tokens)
        self.num_tokens += len(tokens)
        self.num_output += len(tokens)

    def extend_keys(self, num_blocks: int, block_tokens: int) -> None:
        """Continue the chain over generated tokens until it names `num_blocks` blocks."""
        have = len(self.keys)
        if have >= num_blocks:
            return
        parent = self.keys[-1] if self.keys else self.request.root
        step = block_tokens * TOKEN_BYTES
        self.keys += extend_keys(parent, bytes(self.data[have * step : num_blocks * step]), block_tokens)
