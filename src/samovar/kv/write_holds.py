"""What writes to the disk keep in place in the host tier: the chain that ends at each one's last block.

Writes of a turn follow each other along its chain, so one only holds what lies behind the one before it; when that ends
first, it takes that over. So a chain is gone through once, not once for each of its batches.

Invariant: of the writes of a row, in their order, `host_held` together are the chain to the last one's last block.
"""

from __future__ import annotations

from samovar.kv.tier import Tier
from samovar.kv.under_way import UnderWay


class WriteHolds:
    """Fills and empties `host_held` of writes."""

    __slots__ = ("_host", "_latest", "_rows")

    def __init__(self, host: Tier) -> None:
        self._host = host
        self._latest: dict[str, list[UnderWay]] = {}
        """The row of a turn that the next write may join."""
        self._rows: dict[int, list[UnderWay]] = {}
        """Of every write under way, by its identity."""

    def __len__(self) -> int:
        """Writes under way."""
        return len(self._rows)

    def hold(self, write: UnderWay) -> None:
        """Its blocks stay, with all before them, until `let_go`."""
        host, key = self._host, write.keys[-1]
        depth = host.leaf(key).depth_blocks + 1
        row = self._latest.get(write.cause, [])
        behind = depth - sum(len(other.host_held) for other in row)
        if not row or behind <= 0 or not self._follows(row[-1], write, behind):
            row = self._latest[write.cause] = []
            behind = depth
        write.host_held = host.hold(key, behind)
        row.append(write)
        self._rows[id(write)] = row

    def _follows(self, before: UnderWay, write: UnderWay, blocks: int) -> bool:
        """Whether so many blocks lie between the ends of both: else they are of another chain, or of one that was lost
        meanwhile and came again."""
        index = self._host.index
        return index.parent_of(index.chain(write.keys[-1], blocks)[0]) == before.host_held[-1]

    def let_go(self, write: UnderWay) -> None:
        row = self._rows.pop(id(write))
        at = next(at for at, other in enumerate(row) if other is write)
        del row[at]
        held, write.host_held = write.host_held, []
        if at < len(row):
            row[at].host_held[:0] = held
            return
        if not row and self._latest.get(write.cause) is row:
            del self._latest[write.cause]
        self._host.unhold(held)

    def check(self) -> None:
        index = self._host.index
        rows = {id(row): row for row in self._rows.values()}
        assert sum(len(row) for row in rows.values()) == len(self._rows)
        assert all(row and self._rows[id(row[-1])] is row for row in self._latest.values())
        for row in rows.values():
            held = [block for write in row for block in write.host_held]
            assert all(write.host_held for write in row)
            key = index.key_of(held[-1])
            assert key is None or index.chain(key, len(held)) == held, "what is held is no chain"
            assert key is None or index.parent_of(held[0]) is None, "the start of a chain is not held"
