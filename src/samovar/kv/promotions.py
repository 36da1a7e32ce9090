"""Brings chains that are expected to be asked for soon from disk up to the host tier, where there is room for them: it
never takes the place of what the policy values more."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from samovar.base.ids import BlockKey
from samovar.core.plan import Move
from samovar.kv.breaker import Breaker
from samovar.kv.tier import Tier
from samovar.kv.under_way import Transfers, UnderWay, split

MOST_CHAINS = 64
"""That wait; the oldest are dropped."""
MOST_READS = 2
"""Moves under way: what is asked for meanwhile must not wait long behind them."""
PROBE: BlockKey = b""
"""In place of a chain's last key."""
BROKEN = frozenset(("generation", "checksum", "missing", "io"))
"""Reasons for which a block is not worth another try."""


class Promotions:
    __slots__ = ("_batch_blocks", "_breaker", "_chains", "_disk", "_host", "_num_reads", "_transfers")

    def __init__(
        self,
        host: Tier,
        disk: Tier,
        transfers: Transfers,
        breaker: Breaker,
        batch_blocks: int,
    ) -> None:
        self._host = host
        self._disk = disk
        self._transfers = transfers
        self._breaker = breaker
        self._batch_blocks = batch_blocks
        self._chains: OrderedDict[BlockKey, Sequence[BlockKey]] = OrderedDict()
        """By last key."""
        self._num_reads = 0

    @property
    def busy(self) -> bool:
        return bool(self._chains) and self._num_reads < MOST_READS and not self._breaker.suspended

    def wanted(self, keys: Sequence[BlockKey]) -> None:
        on_disk = self._disk.match(keys)
        if on_disk > self._host.match(keys):
            self._chains[keys[on_disk - 1]] = keys[:on_disk]
            if len(self._chains) > MOST_CHAINS:
                self._chains.popitem(last=False)

    def moves(self, most: int, now: float) -> Iterator[Move]:
        if self._breaker.suspended:
            yield from self._probes(now)
            return
        while self._chains and self._num_reads < MOST_READS and most > 0:
            tail, keys = next(iter(self._chains.items()))
            move = self._next(tail, keys, now)
            if move is None:
                del self._chains[tail]
            else:
                most -= 1
                yield move

    def _probes(self, now: float) -> Iterator[Move]:
        """At most one: reads a block, whether anybody wants it or not."""
        breaker, disk, host = self._breaker, self._disk, self._host
        if breaker.probe_at is None or breaker.probe_at > now:
            return
        key = disk.index.any_key()
        if key is None:
            breaker.answered()  # it has nothing that could be asked for
            return
        breaker.probing()
        parent = disk.parent_of(key)
        host.make_room(1 - host.pool.num_free, now, under=parent)
        if host.pool.num_free:
            yield self._read(PROBE, (key,), parent)
        else:
            breaker.late(now, probe=True)  # every slot is in use: later

    def _next(self, tail: BlockKey, keys: Sequence[BlockKey], now: float) -> Move | None:
        """None when the rest of a chain is there or on its way, or cannot come."""
        host, disk = self._host, self._disk
        end = disk.match(keys)
        first = host.match(keys)
        while first < end and host.coming(keys[first]):
            first += 1
        if first >= end:
            return None
        parent = keys[first - 1] if first else disk.parent_of(keys[0])
        if not host.expects(parent):
            return None
        leaf = disk.leaf(keys[end - 1])
        worth = host.value(keys[end - 1], leaf.stream, now, leaf.last_used_s)
        count = min(self._batch_blocks, end - first)
        host.make_room(count - host.pool.num_free, now, worth=worth, under=parent)
        chosen = keys[first : first + min(count, host.pool.num_free)]
        return self._read(tail, tuple(chosen), parent) if chosen else None

    def _read(self, tail: BlockKey, keys: tuple[BlockKey, ...], parent: BlockKey) -> Move:
        held = self._disk.hold(keys[-1])
        parents = (parent, *keys[:-1])
        streams = [self._disk.index.stream_of(block) for block in held[-len(keys) :]]
        filling = [self._host.fill(*each) for each in zip(keys, parents, streams, strict=True)]
        under_way = UnderWay("read", keys, filling, disk_held=held, cause=tail.hex())
        self._num_reads += 1
        slots, generations = tuple(f.slot for f in filling), tuple(f.generation for f in filling)
        return Move(self._transfers.begin_move(under_way), "read", 0, keys, slots, generations)

    def done(self, under_way: UnderWay, failed: list[int], reason: str, now: float) -> None:
        self._num_reads -= 1
        good, bad = split(under_way, failed)
        if bad:
            self._disk.failed[reason] += len(bad)
            self._chains.pop(bytes.fromhex(under_way.cause), None)
        self._host.fail(bad)
        self._host.promoted_blocks += len(self._host.landed(good, now)[0])
        self._disk.loaded_blocks += len(good)
        self._disk.let_go(under_way.disk_held, now)

    def check(self) -> None:
        assert self._num_reads == sum(under_way.kind == "read" for under_way in self._transfers.all())
        assert all(keys and keys[-1] == tail for tail, keys in self._chains.items())
