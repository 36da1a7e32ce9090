"""The scheduler's half of the tiers below the device: host memory, and a disk behind it. Pure: no clock, no I/O, no
threads; a simulator runs it unchanged.

Host memory takes whatever the device computes, and is the only way to and from the disk: a block is written from its
slot, and read into one. What was read stays in both. One policy object orders the victims of every tier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from samovar.base.ids import BlockKey, TransferId
from samovar.core.plan import Move, TransferDone
from samovar.core.ports import Reserved, TierMatch, TierShare
from samovar.core.stats import TierReport
from samovar.kv.admission_to_disk import DiskAdmission
from samovar.kv.breaker import Breaker
from samovar.kv.deletions import Deletions
from samovar.kv.orphans import Orphans
from samovar.kv.promotions import BROKEN, PROBE, Promotions
from samovar.kv.rates import Rate
from samovar.kv.reporting import tier_report
from samovar.kv.restoring import Record, restore_chains
from samovar.kv.tier import Tier
from samovar.kv.under_way import Transfers, UnderWay, split
from samovar.kv.write_budget import WriteBudget
from samovar.policy.retention import RetentionPolicy

MOST_BATCH_BLOCKS = 256
WRITES_IN_FLIGHT, LEAST_PINNED_BLOCKS = 4, 16
"""Batches. Their blocks are pinned in the host tier: at most a quarter of it, unless it is tiny, or else what is
computed meanwhile finds no room there."""
MOST_MOVES = 8
"""Per call of `moves`."""
STALE_S = 10.0
"""A chain that was not used for so long and gets a new block is used now."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """What is not in the sizes. Rates are where the measurement of loads starts."""

    host_bytes_per_s: float = 3e9
    disk_bytes_per_s: float = 1e9
    write_bytes_per_s: float | None = None
    """To the disk; None is no limit."""
    write_burst_bytes: float | None = None
    """What may be saved up of it; None is ten seconds' worth."""
    probes: bool = False
    """The rates are guesses: tiers that they speak against are tried now and then."""
    batch_bytes: int = 32 << 20
    """Of one move, which is one commit on the disk."""


class TieredConnector:
    """`core.ports.Connector`."""

    def __init__(
        self,
        host_blocks: int,
        disk_blocks: int,
        policy: RetentionPolicy,
        block_bytes: int,
        tuning: Tuning | None = None,
        compute_s: Callable[[], float] = lambda: 0.02,
    ) -> None:
        """`compute_s`: seconds to compute a block that is in no tier, which is what an eviction may cost; only compared
        with the time to read one."""
        tuning = tuning or Tuning()
        self._block_bytes = block_bytes
        self._compute_s = compute_s
        self._transfers = Transfers()
        self._host = Tier("host", host_blocks, policy, self._restore_to_host_s)
        self._disk = Tier("disk", disk_blocks, policy, lambda key, depth: compute_s())
        self._host_rate = Rate(tuning.host_bytes_per_s, block_bytes, probes=tuning.probes)
        self._disk_rate = Rate(tuning.disk_bytes_per_s, block_bytes, probes=tuning.probes)
        rate, burst = tuning.write_bytes_per_s, tuning.write_burst_bytes
        pinned = max(LEAST_PINNED_BLOCKS, host_blocks // 4)
        batch = max(1, min(MOST_BATCH_BLOCKS, tuning.batch_bytes // block_bytes, pinned // 2))
        self._breaker = Breaker()
        """Of reads from the disk."""
        self._deletions = Deletions(self._disk, self._transfers)
        self._orphans = Orphans(self._disk, self._deletions)
        self._promotions = Promotions(self._host, self._disk, self._transfers, self._breaker, batch)
        self._admission = DiskAdmission(
            self._host,
            self._disk,
            self._deletions,
            self._orphans,
            self._transfers,
            WriteBudget(rate, 10.0 * (rate or 0.0) if burst is None else burst, block_bytes),
            block_bytes,
            batch,
            min(WRITES_IN_FLIGHT * batch, pinned),
        )
        self._wake_at: float | None = None

    # -- loads and stores ------------------------------------------------------------------------------------------

    def lookup(self, keys: Sequence[BlockKey], now: float) -> TierMatch:
        host, disk = self._host, self._disk
        in_host = host.match(keys)
        from_disk = disk.match(keys) - in_host
        from_disk = 0 if self._breaker.suspended else min(from_disk, self._room_beside(keys, in_host))
        shares: list[TierShare] = []
        if in_host:
            shares.append(self._host_rate.share(host.name, in_host, None, now))
        if from_disk > 0:
            shares.append(self._disk_rate.share(disk.name, from_disk, shares[0] if shares else None, now))
        return TierMatch(tuple(shares))

    def _room_beside(self, keys: Sequence[BlockKey], in_host: int) -> int:
        """What comes from disk passes through the host tier: slots for it, beside the part that is there already."""
        host = self._host
        room = host.pool.num_free + host.index.num_unused
        if in_host:
            last = host.index.get(keys[in_host - 1])
            assert last is not None
            if not host.pool.refs[last]:  # else all of the part is held, and not among the unused
                room -= in_host
        return room

    def load(self, transfer_id: TransferId, keys: Sequence[BlockKey], now: float) -> Reserved:
        host = self._host
        in_host = host.match(keys)
        under_way = UnderWay("load", tuple(keys[:in_host]))
        slots: tuple[int, ...] = ()
        generations: tuple[int, ...] = ()
        if in_host:
            under_way.host_held = host.hold(keys[in_host - 1])
            slots, generations = host.slots(under_way.keys)
        self._fetch(under_way, keys, in_host, now)
        if not under_way.keys:
            return Reserved()
        self._transfers.begin(transfer_id, under_way)
        from_disk = len(under_way.filling)
        self._host_rate.queued(in_host * self._block_bytes, now)
        self._disk_rate.queued(from_disk * self._block_bytes, now)
        return Reserved(
            slots + tuple(filling.slot for filling in under_way.filling),
            generations + tuple(filling.generation for filling in under_way.filling),
            from_disk,
        )

    def _fetch(self, under_way: UnderWay, keys: Sequence[BlockKey], first: int, now: float) -> None:
        """Add to a load what only the disk has of `keys[first:]`, as far as the host tier has slots for it."""
        host, disk = self._host, self._disk
        count = disk.match(keys) - first
        if count <= 0 or self._breaker.suspended:
            return
        parent = keys[first - 1] if first else disk.parent_of(keys[0])
        host.make_room(count - host.pool.num_free, now, under=parent)
        chosen = tuple(keys[first : first + min(count, host.pool.num_free)])
        if not chosen:
            return
        under_way.disk_held = disk.hold(chosen[-1])
        streams = [disk.index.stream_of(block) for block in under_way.disk_held[-len(chosen) :]]
        for key, stream in zip(chosen, streams, strict=True):
            under_way.filling.append(host.fill(key, parent, stream))
            parent = key
        under_way.keys += chosen

    def store(
        self, transfer_id: TransferId, keys: Sequence[BlockKey], parent: BlockKey, stream: str, now: float
    ) -> tuple[tuple[int, ...], Reserved]:
        host = self._host
        first = host.match(keys)
        wanted = [i for i in range(first, len(keys)) if not host.coming(keys[i])]
        if not wanted:
            return (), Reserved()
        under = keys[wanted[0] - 1] if wanted[0] else parent
        if not host.expects(under):
            return (), Reserved()  # the host tier lost what these follow; it is offered again with the next turn
        self._refresh(under, stream, now)
        worth = host.value(keys[wanted[-1]], stream, now, now)
        host.make_room(len(wanted) - host.pool.num_free, now, worth=worth, under=under)
        wanted, left = wanted[: host.pool.num_free], wanted[host.pool.num_free :]
        host.failed["no_room"] += sum(self._disk.index.get(keys[i]) is None for i in left)  # the others are not lost
        if not wanted:
            return (), Reserved()
        filling = [host.fill(keys[i], keys[i - 1] if i else parent, stream) for i in wanted]
        under_way = UnderWay("store", tuple(keys[i] for i in wanted), filling)
        self._transfers.begin(transfer_id, under_way)
        return tuple(wanted), Reserved(tuple(f.slot for f in filling), tuple(f.generation for f in filling))

    def _refresh(self, key: BlockKey, stream: str, now: float) -> None:
        """Before its last block gets company: the chain must not be the next victim."""
        host = self._host
        if host.index.get(key) is not None and now - host.leaf(key).last_used_s > STALE_S:
            host.let_go(host.hold(key), now, stream)

    # -- turns and moves -------------------------------------------------------------------------------------------

    def turn_ended(self, stream: str, keys: Sequence[BlockKey], *, keep: bool, now: float) -> None:
        if not keys:
            return
        tiers = (self._host, self._disk)
        if keep:
            for tier in tiers:
                tier.touch(keys, stream, now)
            if self._disk.pool.num_blocks:
                self._admission.turn_ended(stream, tuple(keys), now)
        else:
            self._admission.dropped(stream, keys)
            for tier in tiers:
                tier.condemn(keys, stream)
        self._stir(now)

    def wanted(self, keys: Sequence[BlockKey], now: float) -> None:
        self._promotions.wanted(tuple(keys))
        self._stir(now)

    def distrust(self, keys: Sequence[BlockKey], now: float) -> None:
        self._host.distrust(keys)
        self._deletions.add(self._disk.distrust(keys))
        self._orphans.distrust(keys)
        self._stir(now)

    def lift_budget(self, now: float) -> None:
        """Before an end: what is not on disk by then is lost."""
        self._admission.lift_budget()
        self._stir(now)

    def moves(self, now: float) -> Sequence[Move]:
        found = list(self._promotions.moves(MOST_MOVES, now))
        found += self._admission.moves(MOST_MOVES - len(found), now)
        found += self._deletions.moves(MOST_MOVES)  # last: the above may have made some, and they are cheap
        self._wake_at = self._admission.wake_at
        self._wake(self._breaker.probe_at)
        if self._promotions.busy or self._deletions.queued:
            self._wake_at = now
        return found

    def _wake(self, at: float | None) -> None:
        if at is not None:
            self._wake_at = at if self._wake_at is None else min(self._wake_at, at)

    @property
    def wake_at(self) -> float | None:
        return self._wake_at

    def _stir(self, now: float) -> None:
        self._wake(self._breaker.probe_at)  # something happened that `moves` may have to do with
        if self._promotions.busy or self._admission.busy or self._deletions.queued:
            self._wake_at = now

    # -- reports ---------------------------------------------------------------------------------------------------

    def transferred(self, done: TransferDone, now: float) -> None:
        """Ids that are not under way are ignored: a worker may report twice what was late."""
        under_way = self._transfers.end(done.transfer_id)
        if under_way is None:
            return
        failed = sorted({i for i in done.failed if 0 <= i < len(under_way.keys)})
        reason = done.reason or "unknown"
        match under_way.kind:
            case "load":
                self._heard(under_way, failed, reason, now)
                self._loaded(under_way, failed, reason, now)
                self._measure_load(under_way, done, now)
            case "store":
                self._stored(under_way, failed, reason, now)
            case "read":
                self._heard(under_way, failed, reason, now)
                self._promotions.done(under_way, failed, reason, now)
                if failed:
                    self._failed_on_disk(under_way.keys[failed[0]], reason, now)
                else:
                    self._disk_rate.measured(len(under_way.keys) * self._block_bytes, done.seconds, now)
            case "write":
                self._admission.done(under_way, failed, reason, now)
            case "delete":
                self._deletions.done(under_way, failed, reason)
        self._stir(now)

    def _heard(self, under_way: UnderWay, failed: list[int], reason: str, now: float) -> None:
        """Whether the disk answered. What failed before it came to the disk says nothing of it."""
        first = failed[0] if failed else len(under_way.keys)
        if not under_way.filling or first < under_way.num_held:
            return
        if reason == "late" and len(failed) == len(under_way.filling):
            self._breaker.late(now, probe=under_way.kind == "read" and under_way.cause == PROBE.hex())
        else:
            self._breaker.answered()

    def _loaded(self, under_way: UnderWay, failed: list[int], reason: str, now: float) -> None:
        """Of a load only a leading part counts: what lies behind the first failure was not tried."""
        host, disk = self._host, self._disk
        num_held = under_way.num_held
        arrived = failed[0] if failed else len(under_way.keys)
        if failed:
            tier = host if arrived < num_held else disk
            tier.failed[reason] += 1
            tier.failed["cancelled"] += len(failed) - 1
            if tier is host and reason in BROKEN:
                host.forget(under_way.keys[arrived])
        good, bad = split(under_way, failed)
        host.fail(bad)
        host.promoted_blocks += len(host.landed(good, now)[0])
        host.loaded_blocks += min(arrived, num_held)
        disk.loaded_blocks += len(good)
        host.let_go(under_way.host_held, now)
        disk.let_go(under_way.disk_held, now)
        if failed and arrived >= num_held:
            self._failed_on_disk(under_way.keys[arrived], reason, now)

    def _failed_on_disk(self, key: BlockKey, reason: str, now: float) -> None:
        """A record that turned out to be bad is written again as soon as it is in the host tier."""
        if reason in BROKEN:
            self._orphans.damaged(key)
            self._admission.chain_broke()
            if self._host.index.get(key) is not None:
                self._rewrite([key], now)

    def _rewrite(self, keys: Iterable[BlockKey], now: float) -> None:
        """Those among them that other records wait for."""
        for chain in self._orphans.awaited(keys):
            self._admission.turn_ended("", chain, now)

    def _measure_load(self, under_way: UnderWay, done: TransferDone, now: float) -> None:
        """A part from disk goes on while the part before it is copied: all of the time is the disk's. A late load
        counts too, as one that took at least so long."""
        from_disk = len(under_way.filling) * self._block_bytes
        from_host = under_way.num_held * self._block_bytes
        self._host_rate.done(from_host)
        self._disk_rate.done(from_disk)
        if not done.failed or done.reason == "late":
            rate, num_bytes = (self._disk_rate, from_disk) if from_disk else (self._host_rate, from_host)
            rate.measured(num_bytes, done.seconds, now)

    def _stored(self, under_way: UnderWay, failed: list[int], reason: str, now: float) -> None:
        host = self._host
        good, bad = split(under_way, failed)
        host.failed[reason] += len(bad)
        arrived, lost = host.landed(good, now)
        host.failed["lost"] += len(host.fail(bad)) + len(lost)
        host.stored_blocks += len(arrived)
        self._rewrite(arrived, now)

    # -- a restart -------------------------------------------------------------------------------------------------

    def restore(self, records: Iterable[Record], now: float = 0.0) -> tuple[BlockKey, ...]:
        """Fill the disk's index from what it had at the start: (key, parent, stream) in the order of writing, which
        becomes the order of use. Returns the keys of those that are not findable: the disk is smaller now, and they are
        deleted, or what they follow is missing, and they wait for it."""
        homeless, adrift = restore_chains(self._disk, records, now)
        for key, parent, stream in reversed(adrift):  # where there is no room for all, those written last stay
            self._orphans.add(key, parent, stream, now)
        self._deletions.add(homeless)
        self._stir(now)
        return (*homeless, *(record[0] for record in adrift))

    # -- what it looks like ----------------------------------------------------------------------------------------

    def restore_s(self, key: BlockKey) -> float | None:
        if self._host.index.get(key) is not None:
            return self._host_rate.bare_s(self._block_bytes)
        if self._disk.index.get(key) is not None and not self._breaker.suspended:
            return self._disk_rate.bare_s(self._block_bytes)
        return None

    def _restore_to_host_s(self, key: BlockKey, depth: int) -> float:
        compute_s = self._compute_s()
        if self._disk.index.get(key) is None or self._breaker.suspended:
            return compute_s
        return min(compute_s, self._disk_rate.bare_s(self._block_bytes))

    def blocks_of(self, keys: Sequence[BlockKey]) -> dict[str, int]:
        tiers = (self._host, self._disk) if self._disk.pool.num_blocks else (self._host,)
        return {tier.name: tier.match(keys) for tier in tiers}

    def report(self) -> tuple[TierReport, ...]:
        size, breaker = self._block_bytes, self._breaker
        host = tier_report(self._host, size, self._host_rate, self._host.most_used * size)
        if not self._disk.pool.num_blocks:
            return (host,)
        disk = tier_report(self._disk, size, self._disk_rate, self._disk.num_used * size)
        waiting = self._admission.num_not_durable()
        suspended, times = breaker.suspended, breaker.num_suspensions
        return host, replace(disk, not_yet_durable_blocks=waiting, suspended=suspended, suspensions=times)

    def check(self) -> None:
        host_held = [block for under_way in self._transfers.all() for block in under_way.host_held]
        disk_held = [block for under_way in self._transfers.all() for block in under_way.disk_held]
        self._host.check(host_held)
        self._disk.check([*disk_held, *self._deletions.held(), *self._orphans.held()])
        self._orphans.check()
        self._deletions.check()
        self._promotions.check()
        self._admission.check()
        self._breaker.check()
        filled = [id(filling) for under_way in self._transfers.all() for filling in under_way.filling]
        assert len(filled) == len(set(filled)), "a slot is filled by two transfers"
        loads = [under_way for under_way in self._transfers.all() if under_way.kind == "load"]
        self._host_rate.check(sum(load.num_held for load in loads) * self._block_bytes)
        self._disk_rate.check(sum(len(load.filling) for load in loads) * self._block_bytes)
