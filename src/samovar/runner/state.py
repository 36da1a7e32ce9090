"""What the runner remembers of a request between plans: tokens, block tables, penalty counts, its grammar's matcher.

Built from a `Start`, extended by chunks and results, dropped when a plan releases it. Owned by the runner's thread.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samovar.base.ids import BlockId, RequestId
from samovar.base.keys import TOKEN_BYTES
from samovar.core.plan import Redirect, Start
from samovar.runner.filters import PenaltyCounts, wants_counts
from samovar.runner.grammar import RequestGrammar


class BlockTable:
    """One group's blocks, in order, in an array that grows by doubling: a step of a long request costs what is new in
    its table, not what is there."""

    __slots__ = ("_blocks", "_size", "address")

    def __init__(self) -> None:
        self._blocks: NDArray[np.int64] = np.empty(64, dtype=np.int64)
        self._size = 0
        self.address = self._blocks.ctypes.data
        """Where the first entry is in memory, until the table grows; native kernels read it there."""

    def extend(self, blocks: tuple[BlockId, ...]) -> None:
        size = self._size + len(blocks)
        if size > self._blocks.size:
            grown = np.empty(max(size, 2 * self._blocks.size), dtype=np.int64)
            grown[: self._size] = self.view()
            self._blocks = grown
            self.address = grown.ctypes.data
        self._blocks[self._size : size] = blocks
        self._size = size

    def replace(self, index: int, block: BlockId) -> None:
        assert 0 <= index < self._size, f"entry {index} is replaced in a table of {self._size}"
        self._blocks[index] = block

    def view(self) -> NDArray[np.int64]:
        """All entries, as long as nothing is changed; whoever wants them longer copies them."""
        return self._blocks[: self._size]

    def __len__(self) -> int:
        return self._size


class RunnerRequest:
    """`tokens[:num_tokens]` are known by value: the prompt and every output token sampled so far.

    `broken` says that a step with this request failed, or gave no token for it, and nothing of it ran since: plans
    already in flight may name tokens that never came to be.
    """

    __slots__ = (
        "_buffer",
        "broken",
        "counts",
        "grammar",
        "num_prompt_tokens",
        "num_tokens",
        "request_id",
        "sampling",
        "tables",
    )

    def __init__(self, start: Start, num_groups: int, vocab_size: int, grammar: RequestGrammar | None = None) -> None:
        """`grammar`: of a request whose output is constrained."""
        known = np.frombuffer(start.token_ids, dtype="<i4")
        self.request_id: RequestId = start.request_id
        self.sampling = start.sampling
        self.num_prompt_tokens = start.num_prompt_tokens
        self.num_tokens = len(start.token_ids) // TOKEN_BYTES
        self._buffer: NDArray[np.int32] = np.empty(self.num_tokens + 64, dtype=np.int32)
        self._buffer[: self.num_tokens] = known
        self.broken = False
        self.tables = tuple(BlockTable() for _ in range(num_groups))
        self.grammar = grammar
        self.counts: PenaltyCounts | None = None
        if wants_counts(start.sampling):
            prompt, output = known[: start.num_prompt_tokens], known[start.num_prompt_tokens :]
            self.counts = PenaltyCounts(prompt, output, vocab_size)

    def can_run(self, end: int) -> bool:
        """False when a chunk up to position `end` was built on a step that failed: the core has rolled it back."""
        return end <= self.num_tokens or not self.broken

    def token(self, position: int) -> int:
        self._need(position + 1)
        return int(self._buffer[position])

    def span(self, start: int, end: int) -> NDArray[np.int32]:
        """Tokens [start, end), a view."""
        self._need(end)
        return self._buffer[start:end]

    def output(self, end: int) -> NDArray[np.int32]:
        """Output tokens before position `end`, a view."""
        return self.span(self.num_prompt_tokens, end)

    def put(self, position: int, token: int) -> None:
        """Token `token` was sampled for `position`. What was known from there on is forgotten: a step that runs again
        replaces its first outcome."""
        self._need(position)
        if position < self.num_tokens and self.counts is not None:
            self.counts.remove(self._buffer[position : self.num_tokens].tolist())
        if position == self._buffer.size:
            self._buffer = np.concatenate([self._buffer, np.empty(self._buffer.size // 2 + 1, dtype=np.int32)])
        self._buffer[position] = token
        self.num_tokens = position + 1
        self.broken = False
        if self.counts is not None:
            self.counts.add(token)

    def extend_tables(self, new_blocks: tuple[tuple[BlockId, ...], ...]) -> None:
        for table, blocks in zip(self.tables, new_blocks, strict=False):
            table.extend(blocks)

    def redirect(self, change: Redirect) -> None:
        self.tables[change.group].replace(change.index, change.block)

    def _need(self, num_tokens: int) -> None:
        assert num_tokens <= self.num_tokens, (
            f"request {self.request_id}: token {num_tokens - 1} is asked for, {self.num_tokens} are known"
        )
