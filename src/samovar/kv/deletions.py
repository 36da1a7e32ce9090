"""Records that the disk is to forget. Until it has, their room is not given away, and nothing is written under their
keys: a late deletion would take the new record for the old one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from samovar.base.ids import BlockId, BlockKey
from samovar.core.plan import Move
from samovar.kv.tier import Tier
from samovar.kv.under_way import Transfers, UnderWay

MOST_KEYS = 1024
"""Of one move."""


class Deletions:
    __slots__ = ("_disk", "_queued", "_slots", "_transfers", "num_slots")

    def __init__(self, disk: Tier, transfers: Transfers) -> None:
        self._disk = disk
        self._transfers = transfers
        self._queued: deque[BlockKey] = deque()
        self._slots: dict[BlockKey, BlockId | None] = {}
        """Of what is queued or under way: the room that it takes; None where somebody else took it sooner."""
        self.num_slots = 0
        """Room that will be free in a moment."""

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._slots

    @property
    def queued(self) -> bool:
        return bool(self._queued)

    def add(self, keys: Iterable[BlockKey]) -> None:
        """Keys that have just left the disk's index, or never came to stand in it."""
        pool = self._disk.pool
        for key in keys:
            if key not in self._slots:
                slot = self._slots[key] = pool.take() if pool.num_free else None
                self.num_slots += slot is not None
                self._queued.append(key)

    def moves(self, most: int) -> Iterator[Move]:
        while self._queued and most > 0:
            keys = tuple(self._queued.popleft() for _ in range(min(MOST_KEYS, len(self._queued))))
            most -= 1
            yield Move(self._transfers.begin_move(UnderWay("delete", keys)), "delete", 0, keys)

    def done(self, under_way: UnderWay, failed: list[int], reason: str) -> None:
        """A record that could not be deleted is not found any more all the same."""
        if failed:
            self._disk.failed[reason] += len(failed)
        pool = self._disk.pool
        for key in under_way.keys:
            slot = self._slots.pop(key)
            if slot is not None:
                self.num_slots -= 1
                pool.refs[slot] -= 1
                pool.give_back(slot)

    def held(self) -> list[BlockId]:
        return [slot for slot in self._slots.values() if slot is not None]

    def check(self) -> None:
        assert self.num_slots == len(self.held())
        assert self._slots.keys() >= set(self._queued), "queued and unknown"
        assert all(self._disk.index.get(key) is None for key in self._slots), "findable and to be deleted"
