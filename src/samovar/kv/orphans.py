"""Records on the disk whose chain is broken before them: what they follow was damaged. They keep their room, unless it
is needed, and are findable again as soon as what they follow has been computed and written once more: so a damaged
block, of a prompt that every conversation shares say, costs no other one.

Invariant: an orphan is neither findable nor about to be deleted, and what it follows is not findable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from samovar.base.ids import BlockId, BlockKey
from samovar.kv.deletions import Deletions
from samovar.kv.tier import Tier


class Orphan(NamedTuple):
    parent: BlockKey
    stream: str
    last_used_s: float
    slot: BlockId


class Orphans:
    __slots__ = ("_all", "_awaited", "_children", "_deletions", "_disk", "_order")

    def __init__(self, disk: Tier, deletions: Deletions) -> None:
        self._disk = disk
        self._deletions = deletions
        self._all: dict[BlockKey, Orphan] = {}
        self._children: dict[BlockKey, dict[BlockKey, None]] = {}
        """Orphans by what they follow, an orphan or not."""
        self._awaited: dict[BlockKey, tuple[BlockKey, ...]] = {}
        """Damaged blocks that orphans follow: their chains."""
        self._order: list[BlockKey] = []
        """The last one goes first; empty when it has to be sorted again."""

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._all

    def __len__(self) -> int:
        return len(self._all)

    def damaged(self, key: BlockKey) -> None:
        """This record of the disk is bad: it goes, what follows it waits."""
        index = self._disk.index
        top = index.get(key)
        if top is None:
            return
        chain = self._disk.chain(key)
        blocks = index.subtree(top)[1:]
        parents = [index.parent_of(block) for block in blocks]
        used = [(index.stream_of(block), index.last_used_s(block)) for block in blocks]
        names = dict(zip([top, *blocks], self._disk.forget(key), strict=True))
        self._deletions.add([key])
        for block, parent, (stream, last_used_s) in zip(blocks, parents, used, strict=True):
            assert parent is not None
            self.add(names[block], names[parent], stream, last_used_s)
        if key in self._children:
            self._awaited[key] = chain

    def add(self, key: BlockKey, parent: BlockKey, stream: str, last_used_s: float) -> None:
        """A record that the disk has and whose parent it has not; it is deleted when there is no room left for it."""
        pool = self._disk.pool
        if not pool.num_free:
            self._deletions.add([key])
            return
        self._all[key] = Orphan(parent, stream, last_used_s, pool.take())
        self._children.setdefault(parent, {})[key] = None
        self._order.clear()

    def awaited(self, keys: Iterable[BlockKey]) -> list[tuple[BlockKey, ...]]:
        """The chains of those that orphans wait for; each is given once."""
        return [self._awaited.pop(key) for key in keys if key in self._awaited] if self._awaited else []

    def arrived(self, keys: Iterable[BlockKey]) -> None:
        """These became findable: what follows them is findable again, as recently used as it was."""
        if not self._children:
            return
        disk = self._disk
        groups: dict[tuple[float, str], list[BlockId]] = {}
        todo = list(keys)
        for parent in todo:  # grows meanwhile
            for key in list(self._children.get(parent, ())):
                orphan = self._remove(key)
                block = disk.put(key, parent, orphan.stream)
                groups.setdefault((orphan.last_used_s, orphan.stream), []).append(block)
                todo.append(key)
        for (last_used_s, stream), blocks in sorted(groups.items()):
            disk.index.release(blocks, last_used_s, stream)

    def make_room(self, count: int) -> int:
        """Gives up so many, those first that were not used for longest. Returns how many there were."""
        if not self._all or count <= 0:
            return 0
        if not self._order:
            place = {key: n for n, key in enumerate(self._all)}
            self._order = sorted(self._all, key=lambda key: (-self._all[key].last_used_s, place[key]))
        gone: list[BlockKey] = []
        while self._order and len(gone) < count:
            key = self._order.pop()
            if key in self._all:
                self._remove(key)
                gone.append(key)
        self._deletions.add(gone)
        return len(gone)

    def distrust(self, keys: Iterable[BlockKey]) -> None:
        """Orphans among them, and those that follow one of them, are wrong."""
        todo = list(keys) if self._all else []
        gone: list[BlockKey] = []
        for key in todo:  # grows meanwhile
            todo += self._children.get(key, ())
            if key in self._all:
                self._remove(key)
                gone.append(key)
        self._deletions.add(gone)

    def clear(self) -> None:
        """The disk has lost everything."""
        for key in list(self._all):
            self._remove(key)

    def _remove(self, key: BlockKey) -> Orphan:
        """Its slot is free then."""
        orphan = self._all.pop(key)
        siblings = self._children[orphan.parent]
        del siblings[key]
        if not siblings:
            del self._children[orphan.parent]
            self._awaited.pop(orphan.parent, None)
        self._disk.pool.refs[orphan.slot] -= 1
        self._disk.pool.give_back(orphan.slot)
        return orphan

    def held(self) -> Sequence[BlockId]:
        return [orphan.slot for orphan in self._all.values()]

    def check(self) -> None:
        assert sum(len(children) for children in self._children.values()) == len(self._all)
        for key, orphan in self._all.items():
            assert key in self._children[orphan.parent], "nothing leads to an orphan"
            assert self._disk.index.get(key) is None and key not in self._deletions, "an orphan with two fates"
            assert self._disk.index.get(orphan.parent) is None, "an orphan whose parent is findable"
            assert not self._disk.coming(key), "an orphan is written once more"
        assert len(set(self.held())) == len(self._all)
        assert self._awaited.keys() <= self._children.keys()
        assert not self._order or self._all.keys() <= set(self._order)
