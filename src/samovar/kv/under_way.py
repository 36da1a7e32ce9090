"""Transfers that were handed out and not reported yet: what each of them holds and fills."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from samovar.base.ids import BlockId, BlockKey, TransferId
from samovar.kv.tier import Filling

Kind = Literal["load", "store", "read", "write", "delete"]


@dataclass(slots=True)
class UnderWay:
    """`filling` are slots of the host tier, or of the disk for a write, for the last of `keys`: all of them but for a
    load, whose first blocks lie in the host tier already."""

    kind: Kind
    keys: tuple[BlockKey, ...]
    filling: list[Filling] = field(default_factory=list)
    host_held: list[BlockId] = field(default_factory=list)
    disk_held: list[BlockId] = field(default_factory=list)
    cause: str = ""
    """Of a write: the turn it is part of."""

    @property
    def num_held(self) -> int:
        """Of the keys, those that are not filled."""
        return len(self.keys) - len(self.filling)


class Transfers:
    """Ids of the core's transfers are its own; moves are counted down from -1."""

    __slots__ = ("_all", "_last_move")

    def __init__(self) -> None:
        self._all: dict[TransferId, UnderWay] = {}
        self._last_move = 0

    def __len__(self) -> int:
        return len(self._all)

    def begin(self, transfer_id: TransferId, under_way: UnderWay) -> None:
        assert transfer_id not in self._all, "a transfer's id is in use"
        self._all[transfer_id] = under_way

    def begin_move(self, under_way: UnderWay) -> TransferId:
        self._last_move -= 1
        transfer_id = TransferId(self._last_move)
        self.begin(transfer_id, under_way)
        return transfer_id

    def end(self, transfer_id: TransferId) -> UnderWay | None:
        return self._all.pop(transfer_id, None)

    def all(self) -> Iterable[UnderWay]:
        return self._all.values()


def split(under_way: UnderWay, failed: Iterable[int]) -> tuple[list[Filling], list[Filling]]:
    """Of what it filled: the blocks that arrived, and those that did not."""
    bad = set(failed)
    first = under_way.num_held
    good = [filling for i, filling in enumerate(under_way.filling) if first + i not in bad]
    return good, [filling for i, filling in enumerate(under_way.filling) if first + i in bad]
