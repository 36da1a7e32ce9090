"""A runner whose KV says what it was computed from, so that any wrong reuse of a block shows at once.

Every slot holds a hash of the whole prefix up to its position. A chunk may only run when each position before it holds
the right hash; the next token is a function of that hash. So outputs are known in advance, whatever the schedule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from samovar.base.keys import unpack_tokens
from samovar.core.plan import StepPlan, StepResult, TransferDone

VOCAB = 50


def extend_hash(previous: bytes, token: int) -> bytes:
    return blake2b(previous + token.to_bytes(4, "little"), digest_size=8).digest()


def token_after(prefix: bytes) -> int:
    return int.from_bytes(prefix[:4], "little") % VOCAB


def expected_output(prompt: list[int], count: int) -> list[int]:
    prefix = b""
    for token in prompt:
        prefix = extend_hash(prefix, token)
    out: list[int] = []
    for _ in range(count):
        out.append(token_after(prefix))
        prefix = extend_hash(prefix, out[-1])
    return out


@dataclass
class _Request:
    tokens: list[int]
    table: list[int] = field(default_factory=list)
    sampled: dict[int, int] = field(default_factory=dict)  # step -> token


class OracleRunner:
    """Executes a plan when told to; checks the delta protocol as a real runner would rely on it."""

    def __init__(self, block_tokens: int, accept: Callable[[int], int] | None = None) -> None:
        self.bs = block_tokens
        self.kv: dict[tuple[int, int], bytes] = {}
        self.requests: dict[int, _Request] = {}
        self.tier: dict[bytes, list[bytes]] = {}
        self.done: list[TransferDone] = []
        self.computed_tokens = 0
        self.computed_by: dict[int, int] = {}
        self.queue: deque[StepPlan] = deque()
        self.last_step = -1
        self.accept = accept

    def submit(self, plan: StepPlan) -> None:
        assert plan.step == self.last_step + 1
        self.last_step = plan.step
        self.queue.append(plan)

    def run(self, *, fail: bool = False, fail_loads: tuple[int, ...] = (), fail_stores: bool = False) -> StepResult:
        plan = self.queue.popleft()
        for request_id in plan.released:
            del self.requests[request_id]
        for start in plan.starts:
            assert start.request_id not in self.requests, "started twice"
            self.requests[start.request_id] = _Request(unpack_tokens(start.token_ids))
        for redirect in plan.redirects:
            self.requests[redirect.request_id].table[redirect.index] = redirect.block
        for store in plan.stores:
            for key, block in zip(store.keys, store.blocks, strict=True):
                self.tier[key] = [self.kv[block, i] for i in range(self.bs)]
            self.done.append(TransferDone(store.transfer_id, (0,) if fail_stores else ()))
        for load in plan.loads:
            failed = tuple(i for i in fail_loads if i < len(load.keys))
            for i, (key, block) in enumerate(zip(load.keys, load.blocks, strict=True)):
                for slot in range(self.bs):
                    self.kv[block, slot] = b"bad" if i in failed else self.tier[key][slot]
            self.done.append(TransferDone(load.transfer_id, failed))
        if fail:
            self._poison(plan)
            return StepResult(plan.step, error="told to fail")
        return StepResult(plan.step, tuple(self._chunk(plan.step, chunk) for chunk in plan.chunks))

    def _poison(self, plan: StepPlan) -> None:
        for chunk in plan.chunks:
            request = self.requests[chunk.request_id]
            request.table.extend(chunk.new_blocks[0] if chunk.new_blocks else ())
            for p in range(chunk.start, chunk.start + chunk.num_tokens):
                self.kv[request.table[p // self.bs], p % self.bs] = b"failed"
            request.sampled[plan.step] = 0
            if chunk.samples:
                request.tokens.append(0)

    def _chunk(self, step: int, chunk) -> tuple[int, ...]:
        request = self.requests[chunk.request_id]
        request.table.extend(chunk.new_blocks[0] if chunk.new_blocks else ())
        end = chunk.start + chunk.num_tokens
        assert end <= len(request.table) * self.bs, "the table does not cover the chunk"
        if chunk.sampled_in >= 0:
            assert request.tokens[chunk.start] == request.sampled[chunk.sampled_in]
        known = len(request.tokens)
        assert chunk.start < known and (end <= known or self.accept is not None)
        prefix = b""
        for p in range(chunk.start):
            prefix = extend_hash(prefix, request.tokens[p])
            if self.kv.get((request.table[p // self.bs], p % self.bs)) != prefix:
                return (0,) if chunk.samples else ()  # a lie that the expected output exposes, unless rolled back
        for p in range(chunk.start, min(end, known)):
            prefix = extend_hash(prefix, request.tokens[p])
            self.kv[request.table[p // self.bs], p % self.bs] = prefix
        self.computed_tokens += chunk.num_tokens
        self.computed_by[chunk.request_id] = self.computed_by.get(chunk.request_id, 0) + chunk.num_tokens
        if not chunk.samples:
            return ()
        drafts = end - known if end > known else 0
        out = [token_after(prefix)]
        accepted = self.accept(drafts) if self.accept is not None and drafts else 0
        for i in range(drafts):
            p = known + i
            if i < accepted:
                prefix = extend_hash(prefix, out[-1])
                self.kv[request.table[p // self.bs], p % self.bs] = prefix
                out.append(token_after(prefix))
            else:
                self.kv[request.table[p // self.bs], p % self.bs] = b"rejected"
        request.tokens.extend(out)
        request.sampled[step] = out[-1]
        return tuple(out)
