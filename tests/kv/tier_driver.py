"""Plays the core and the worker for a `TieredConnector`: numbers transfers and reports them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from samovar.core.plan import Move, TransferDone
from samovar.core.ports import Reserved
from samovar.kv.tiers import TieredConnector, Tuning
from samovar.policy.lru import LRU
from samovar.policy.retention import Leaf
from tests.kv.tier_world import chain

A = chain([1, 1, 1, 1, 1, 1, 1, 1])
B = chain([2, 2, 2, 2, 2, 2, 2, 2])
C = chain([3, 3, 3, 3, 3, 3, 3, 3])


@dataclass
class Worth:
    """Values by stream, superseded blocks below all."""

    of: dict[str, float] = field(default_factory=dict)
    name: str = "worth"
    sample: int = 16

    def value(self, leaf: Leaf, now: float) -> float:
        return -1.0 if leaf.superseded else self.of[leaf.stream]


class Driver:
    def __init__(self, tiers: TieredConnector) -> None:
        self.tiers = tiers
        self.last = 0
        self.now = 0.0

    def store(
        self, keys: Sequence[bytes], stream: str = "s", first: int = 0, *, report: bool = True
    ) -> tuple[tuple[int, ...], Reserved]:
        self.last += 1
        parent = keys[first - 1] if first else b""
        answer = self.tiers.store(self.last, keys[first:], parent, stream, self.now)
        if report and answer[0]:
            self.done(self.last)
        return answer

    def load(self, keys: Sequence[bytes]) -> Reserved:
        self.last += 1
        return self.tiers.load(self.last, keys, self.now)

    def done(self, transfer_id: int, failed: tuple[int, ...] = (), reason: str = "", seconds: float = 0.0) -> None:
        self.tiers.transferred(TransferDone(transfer_id, failed, reason, seconds), self.now)
        self.tiers.check()

    def end_turn(self, keys: Sequence[bytes], stream: str = "s", *, keep: bool = True) -> None:
        self.tiers.turn_ended(stream, keys, keep=keep, now=self.now)

    def moves(self, op: str | None = None) -> list[Move]:
        return [move for move in self.tiers.moves(self.now) if op is None or move.op == op]

    def settle(self) -> list[Move]:
        """Performs and reports moves until there are none."""
        all_moves: list[Move] = []
        while moves := self.moves():
            all_moves += moves
            for move in moves:
                self.done(move.transfer_id)
        return all_moves

    def has(self, keys: Sequence[bytes]) -> dict[str, int]:
        return self.tiers.blocks_of(keys)

    def failed(self, tier: str) -> dict[str, int]:
        return next(report.failed for report in self.tiers.report() if report.tier == tier)

    def not_durable(self) -> int:
        return next(report.not_yet_durable_blocks for report in self.tiers.report() if report.tier == "disk")


def driver(
    host: int = 100, disk: int = 100, policy: object | None = None, block_bytes: int = 10, **tuning: float
) -> Driver:
    return Driver(TieredConnector(host, disk, policy or LRU(), block_bytes, Tuning(**tuning)))


def on_disk(d: Driver, keys: Sequence[bytes], stream: str = "s") -> None:
    d.store(keys, stream)
    d.end_turn(keys, stream)
    d.settle()


def lose_host(d: Driver, count: int) -> None:
    """Evict that many blocks from the host tier."""
    index = d.tiers._host.index
    index.evict(min(count, index.num_unused), d.now, None)
