"""What the slots of a host tier and the disk behind it hold, without the bytes: looked at when a transfer is first
worked on, changed when its bytes have arrived. Positions are those of the transfer's key list."""

from __future__ import annotations

from collections.abc import Sequence

from samovar.base.ids import BlockKey
from samovar.core.plan import Load, Move, Store
from samovar.sim.mover_transfer import Transfer


class Contents:
    """Movers whose ranks share a tier share one."""

    __slots__ = ("_disk", "_slots")

    def __init__(self) -> None:
        self._slots: dict[int, tuple[BlockKey, int]] = {}
        """Key and generation that each slot was written for; one that is being written has none."""
        self._disk: set[BlockKey] = set()

    def leading_sealed(self, transfer: Transfer, load: Load, positions: range) -> Sequence[int]:
        """Up to the first slot that does not hold what it should."""
        for count, i in enumerate(positions):
            if not self._holds(load, i):
                transfer.fail(i, "generation")
                return positions[:count]
        return positions

    def all_sealed(self, transfer: Transfer, move: Move, positions: range) -> Sequence[int]:
        good: list[int] = []
        for i in positions:
            if self._holds(move, i):
                good.append(i)
            else:
                transfer.fail(i, "generation")
        return good

    def on_disk(self, transfer: Transfer, named: Load | Move, positions: range) -> Sequence[int]:
        good: list[int] = []
        for i in positions:
            if not transfer.wants(i):
                break
            if named.keys[i] in self._disk:
                good.append(i)
            else:
                transfer.fail(i, "missing")
        return good

    def unseal(self, store: Store, positions: range) -> Sequence[int]:
        for i in positions:
            self._slots.pop(store.slots[i], None)
        return positions

    def seal(self, named: Load | Store | Move, positions: Sequence[int]) -> None:
        for i in positions:
            self._slots[named.slots[i]] = (named.keys[i], named.generations[i])

    def write(self, move: Move, positions: Sequence[int]) -> None:
        self._disk.update(move.keys[i] for i in positions)

    def delete(self, move: Move, positions: Sequence[int]) -> None:
        self._disk.difference_update(move.keys[i] for i in positions)

    def _holds(self, named: Load | Move, position: int) -> bool:
        there = self._slots.get(named.slots[position])
        return there == (named.keys[position], named.generations[position])
