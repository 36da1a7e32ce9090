"""What a disk had when the program started, put back into its index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from samovar.base.ids import BlockId, BlockKey
from samovar.kv.tier import Tier

Record = tuple[BlockKey, BlockKey, str]
"""(key, the key before it or b"", stream)"""


def restore_chains(disk: Tier, records: Iterable[Record], now: float) -> tuple[list[BlockKey], list[Record]]:
    """`records` in the order of writing: those written last count as used last. Where there are more than fit, the
    policy's least valuable go. Returns the keys that did not find a place or lost it, and the records whose parent is
    missing."""
    homeless: dict[BlockKey, None] = {}
    adrift: dict[BlockKey, dict[BlockKey, Record]] = {}
    """By parent. What was damaged and written again stands behind its children."""
    for run in _runs(records):
        held: list[BlockId] = []
        for first in run:
            todo = [first]
            for record in todo:  # grows meanwhile
                key, parent, stream = record
                if disk.index.get(key) is not None:
                    continue
                if parent and disk.index.get(parent) is None:
                    adrift.setdefault(parent, {})[key] = record
                    continue
                homeless.pop(key, None)
                if not disk.pool.num_free:
                    homeless.update(dict.fromkeys(disk.make_room(1, now, under=parent)))
                if not disk.pool.num_free:
                    homeless[key] = None
                    continue
                held.append(disk.put(key, parent, stream))
                todo += adrift.pop(key, {}).values()
        disk.let_go(held, now)
    left = [record for children in adrift.values() for record in children.values()]
    return list(homeless), [r for r in left if r[0] not in homeless and disk.index.get(r[0]) is None]


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
