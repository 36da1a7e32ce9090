"""What one step does: the core writes it, a runner executes it, a log replays it.

A plan is a delta. The runner keeps each request's tokens and block tables; a plan names the whole table when a
request starts or resumes and afterwards only new or replaced entries. It says what to do, never how a rank does it:
every rank derives its own slots from the same plan.

These are frozen msgspec structs rather than dataclasses: they are built 256 times a step and cross a process border,
and a struct costs a tenth of a frozen dataclass in both places.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from samovar.base.ids import BlockId, BlockKey, RequestId, TransferId
from samovar.core.sampling import SamplingParams


class Start(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request begins, or resumes after a preemption: the runner makes its state from this, dropping any older one."""

    request_id: RequestId
    token_ids: bytes
    """Prompt and the output applied so far, little-endian int32."""
    num_prompt_tokens: int
    sampling: SamplingParams


class Chunk(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Tokens of one request to run in this step: positions [start, start + num_tokens)."""

    request_id: RequestId
    start: int
    num_tokens: int
    new_blocks: tuple[tuple[BlockId, ...], ...] = ()
    """Per KV group, the blocks appended to its table since the last plan that named the request (all of them when it
    starts or resumes); () when there are none in any group."""
    samples: bool = True
    """Whether a token is sampled after the last position (false for every prefill chunk but the last)."""
    sampled_in: int = -1
    """The step whose result holds the token at `start`, when the core had not seen it by value; else -1."""


class Redirect(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Entry `index` of a request's table is now `block`, since an equal one was found; applies before the chunks."""

    request_id: RequestId
    group: int
    index: int
    block: BlockId


class Copy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Copy a block's KV inside the device, before the chunks run."""

    group: int
    source: BlockId
    target: BlockId


class Load(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Bring blocks from a tier into the device. `blocks[i]` receives what `keys[i]` names, which lies in slot
    `slots[i]` of the host tier; `from_disk` blocks at the end of the list have to be read into their slots first.
    Nobody else writes a named slot or block until the transfer is reported."""

    transfer_id: TransferId
    group: int
    keys: tuple[BlockKey, ...]
    blocks: tuple[BlockId, ...]
    slots: tuple[int, ...] = ()
    generations: tuple[int, ...] = ()
    """What each slot must carry, so that one that was given to another key meanwhile is noticed."""
    from_disk: int = 0


class Store(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Copy computed blocks into slots of the host tier. The blocks stay untouched until the transfer is reported."""

    transfer_id: TransferId
    group: int
    keys: tuple[BlockKey, ...]
    blocks: tuple[BlockId, ...]
    slots: tuple[int, ...] = ()
    generations: tuple[int, ...] = ()


class Move(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Bytes between host tier and disk, or off the disk; no device block takes part. Its id is the connector's own, and
    negative.

    - "write": slots to disk. `parents[i]` is the key before `keys[i]` in its chain (b"" for a first block) and `stream`
      whose they are: a restart rebuilds the index from them. Reported once it would survive a crash.
    - "read": disk to slots.
    - "delete": the disk forgets the keys. `slots` is ().
    """

    transfer_id: TransferId
    op: Literal["write", "read", "delete"]
    group: int
    keys: tuple[BlockKey, ...]
    slots: tuple[int, ...] = ()
    generations: tuple[int, ...] = ()
    parents: tuple[BlockKey, ...] = ()
    stream: str = ""


class Compare(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Compare blocks on the device, before the chunks run: `computed[i]` with `loaded[i]`. Reported like a transfer,
    with the positions that differ as its failed ones."""

    transfer_id: TransferId
    group: int
    computed: tuple[BlockId, ...]
    loaded: tuple[BlockId, ...]


class StepPlan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One plan. `step` counts every plan from 0; plans run in order. Without chunks it is no step: it starts its
    transfers and its result is empty."""

    step: int
    chunks: tuple[Chunk, ...] = ()
    starts: tuple[Start, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    copies: tuple[Copy, ...] = ()
    loads: tuple[Load, ...] = ()
    stores: tuple[Store, ...] = ()
    moves: tuple[Move, ...] = ()
    released: tuple[RequestId, ...] = ()
    """Requests that ended or were preempted: the runner forgets them before it looks at anything else in the plan."""
    compares: tuple[Compare, ...] = ()


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Log probabilities at one output position, of the distribution before temperature and filters."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    """The most likely (token id, log probability), best first."""


class StepResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a runner answers. `tokens[i]` belongs to `plan.chunks[i]`: () for a chunk that does not sample, one token
    for a decode, several with speculation."""

    step: int
    tokens: tuple[tuple[int, ...], ...] = ()
    logprobs: tuple[tuple[TokenLogprobs, ...], ...] | None = None
    """Aligned with `tokens`; () for a request that did not ask; None when none asked."""
    error: str | None = None
    """Set when the step failed: nothing it wrote may be used."""
    failed: tuple[int, ...] = ()
    """Chunks, by their index, that the step ran but could not sample from (logits that are no numbers, nothing left to
    choose from). Their tokens are (); the other chunks are good."""


class TransferDone(msgspec.Struct, frozen=True, array_like=True):
    """A load, store or move ended on every rank. `failed` are positions in its key list; empty means all arrived."""

    transfer_id: TransferId
    failed: tuple[int, ...] = ()
    reason: str = ""
    """Why the first of them failed: "checksum", "generation", "missing", "io", "late", "cancelled", "full"."""
    seconds: float = 0.0
    """How long the bytes took to move, without waiting for their turn."""


class Gate(msgspec.Struct, frozen=True, array_like=True):
    """What a DP group decided for this step; None in its place when the engine is alone."""

    step_counter: int
    prefill_allowed: bool
