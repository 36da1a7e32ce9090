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
from samovar.core.plan import Chunk, Compare, Load, StepPlan, StepResult, Store, TransferDone

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
        self.computed_tokens = 0
        self.computed_by: dict[int, int] = {}
        self.queue: deque[StepPlan] = deque()
        self.last_step = -1
        self.accept = accept
        self.moving: deque[Load | Store] = deque()  # begun, not ended
        self.compared: list[TransferDone] = []
        self._tables: dict[int, list[int]] = {}  # as of the last submitted plan
        self._named: deque[dict[int, list[int]]] = deque()  # per plan in flight: the tables it works on

    def submit(self, plan: StepPlan) -> None:
        assert plan.step == self.last_step + 1
        self.last_step = plan.step
        self._check_reuse(plan)
        self.queue.append(plan)

    def _check_reuse(self, plan: StepPlan) -> None:
        """What a plan writes, no plan in flight names for another request and no transfer touches."""
        for request_id in plan.released:
            self._tables.pop(request_id, None)
        for start in plan.starts:
            self._tables[start.request_id] = []
        for redirect in plan.redirects:
            self._tables[redirect.request_id][redirect.index] = redirect.block
        written: list[tuple[int, int]] = [(-1, block) for load in plan.loads for block in load.blocks]
        for chunk in plan.chunks:
            table = self._tables[chunk.request_id]
            table.extend(chunk.new_blocks[0] if chunk.new_blocks else ())
            last = (chunk.start + chunk.num_tokens - 1) // self.bs
            written += [(chunk.request_id, block) for block in table[chunk.start // self.bs : last + 1]]
        moving = {block for transfer in self.moving for block in transfer.blocks}
        for plan_ahead in self.queue:
            moving |= {block for transfer in (*plan_ahead.loads, *plan_ahead.stores) for block in transfer.blocks}
        for writer, block in written:
            assert block not in moving, "a block that a transfer touches was reused"
            for tables in self._named:
                for owner, table in tables.items():
                    assert block not in table or owner == writer, "a block that a plan in flight names was reused"
        self._named.append({c.request_id: list(self._tables[c.request_id]) for c in plan.chunks})

    def land(self, count: int = 1_000_000, bad: tuple[int, ...] = ()) -> list[TransferDone]:
        """End the oldest `count` transfers; blocks at positions `bad` of each fail. Bytes move only now."""
        done, self.compared = self.compared, []
        while self.moving and count > 0:
            count -= 1
            transfer = self.moving.popleft()
            failed = tuple(i for i in bad if i < len(transfer.keys))
            for i, (key, block) in enumerate(zip(transfer.keys, transfer.blocks, strict=True)):
                for slot in range(self.bs):
                    if isinstance(transfer, Load):
                        self.kv[block, slot] = b"bad" if i in failed else self.tier[key][slot]
                if isinstance(transfer, Store) and i not in failed:
                    self.tier[key] = [self.kv[block, slot] for slot in range(self.bs)]
            done.append(TransferDone(transfer.transfer_id, failed))
        return done

    def run(self, *, fail: bool = False) -> StepResult:
        plan = self.queue.popleft()
        self._named.popleft()
        for request_id in plan.released:
            del self.requests[request_id]
        for start in plan.starts:
            assert start.request_id not in self.requests, "started twice"
            self.requests[start.request_id] = _Request(unpack_tokens(start.token_ids))
        for redirect in plan.redirects:
            self.requests[redirect.request_id].table[redirect.index] = redirect.block
        self.moving += (*plan.stores, *plan.loads)
        self.compared += [TransferDone(c.transfer_id, self._differing(c)) for c in plan.compares]
        if fail:
            self._poison(plan)
            return StepResult(plan.step, error="told to fail")
        # Chunks of one plan may not rely on each other: all reads are checked before anything is written.
        readable = [self._reads_well(chunk) for chunk in plan.chunks]
        return StepResult(
            plan.step, tuple(self._chunk(plan.step, chunk, ok) for chunk, ok in zip(plan.chunks, readable, strict=True))
        )

    def _differing(self, compare: Compare) -> tuple[int, ...]:
        def bytes_of(block: int) -> list[bytes | None]:
            return [self.kv.get((block, slot)) for slot in range(self.bs)]

        pairs = zip(compare.computed, compare.loaded, strict=True)
        return tuple(i for i, (a, b) in enumerate(pairs) if bytes_of(a) != bytes_of(b))

    def _poison(self, plan: StepPlan) -> None:
        for chunk in plan.chunks:
            request = self.requests[chunk.request_id]
            request.table.extend(chunk.new_blocks[0] if chunk.new_blocks else ())
            for p in range(chunk.start, chunk.start + chunk.num_tokens):
                self.kv[request.table[p // self.bs], p % self.bs] = b"failed"
            request.sampled[plan.step] = 0
            if chunk.samples:
                request.tokens.append(0)

    def _reads_well(self, chunk: Chunk) -> bool:
        request = self.requests[chunk.request_id]
        request.table.extend(chunk.new_blocks[0] if chunk.new_blocks else ())
        prefix = b""
        for p in range(chunk.start):
            prefix = extend_hash(prefix, request.tokens[p])
            if self.kv.get((request.table[p // self.bs], p % self.bs)) != prefix:
                return False
        return True

    def _chunk(self, step: int, chunk: Chunk, reads_well: bool) -> tuple[int, ...]:
        request = self.requests[chunk.request_id]
        end = chunk.start + chunk.num_tokens
        assert end <= len(request.table) * self.bs, "the table does not cover the chunk"
        if chunk.sampled_in >= 0:
            assert request.tokens[chunk.start] == request.sampled[chunk.sampled_in]
        known = len(request.tokens)
        assert chunk.start < known and (end <= known or self.accept is not None)
        if not reads_well:  # a lie that the expected output exposes, unless it is rolled back
            if chunk.samples:
                request.tokens.append(0)
                request.sampled[step] = 0
            for p in range(chunk.start, end):
                self.kv[request.table[p // self.bs], p % self.bs] = b"lie"
            return (0,) if chunk.samples else ()
        prefix = b""
        for p in range(chunk.start):
            prefix = extend_hash(prefix, request.tokens[p])
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
