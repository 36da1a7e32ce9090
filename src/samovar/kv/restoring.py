"""What a disk had when the program started, put back into its index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from samovar.base.ids import BlockId, BlockKey
from samovar.kv.tier import Tier

Record = tuple[BlockKey, BlockKey, str]
"""(key, the key before it or b"", stream)"""


def restore_chains(disk: Tier, records: Iterable[Record], now: float) -> tuple[BlockKey, ...]:
    """`records` in the order of writing: those written last count as used last. Where there are more than fit, the
    policy's least valuable go. Returns the keys that did not find a place, or lost it."""
    unusable: dict[BlockKey, None] = {}
    get = disk.index.get
    for run in _runs(records):
        held: list[BlockId] = []
        for key, parent, stream in run:
            if get(key) is not None:
                continue
            unusable.pop(key, None)
            known = not parent or get(parent) is not None
            if known and not disk.pool.num_free:
                unusable.update(dict.fromkeys(disk.make_room(1, now, under=parent)))
            if known and disk.pool.num_free:
                held.append(disk.put(key, parent, stream))
            else:
                unusable[key] = None
        disk.let_go(held, now)
    return tuple(unusable)


def _runs(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Consecutive records of one chain and stream: they were used together."""
    run: list[Record] = []
    for record in records:
        if run and (record[1] != run[-1][0] or record[2] != run[-1][2]):
            yield run
            run = []
        run.append(record)
    if run:
        yield run
