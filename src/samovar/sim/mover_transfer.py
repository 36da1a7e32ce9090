"""One load, store or move under way on the virtual clock: which blocks have arrived, and for how long it was worked on.
The same rules as the real one's, without its threads."""

from __future__ import annotations

from collections.abc import Iterable

from samovar.base.ids import TransferId
from samovar.core.plan import TransferDone
from samovar.kv.transfer import LATE


class Transfer:
    """`in_order`: only a leading part of it counts, so what lies behind the first failure has failed."""

    __slots__ = ("_arrived", "_at_work", "_at_work_since_s", "_in_order", "_num_blocks", "_reasons", "_seconds", "id")

    def __init__(self, transfer_id: TransferId, num_blocks: int, *, in_order: bool) -> None:
        self.id = transfer_id
        self._num_blocks = num_blocks
        self._in_order = in_order
        self._arrived: set[int] = set()
        self._reasons: dict[int, str] = {}
        self._at_work = 0
        self._at_work_since_s = 0.0
        self._seconds = 0.0

    def wants(self, position: int) -> bool:
        """False behind a failure, where order counts."""
        return not (self._in_order and self._reasons and min(self._reasons) < position)

    def arrived(self, positions: Iterable[int]) -> None:
        self._arrived.update(positions)

    def fail(self, position: int, reason: str) -> None:
        self._reasons.setdefault(position, reason)

    def work_begins(self, now: float) -> None:
        """On one of its parts."""
        if self._at_work == 0:
            self._at_work_since_s = now
        self._at_work += 1

    def work_stops(self, now: float) -> None:
        assert self._at_work > 0
        self._at_work -= 1
        if self._at_work == 0:
            self._seconds += now - self._at_work_since_s

    def end(self) -> TransferDone:
        """When nobody works on it. Blocks that have neither arrived nor failed are late."""
        assert self._at_work == 0
        if not self._reasons and len(self._arrived) == self._num_blocks:
            return TransferDone(self.id, (), "", self._seconds)
        bad = [i for i in range(self._num_blocks) if i not in self._arrived or i in self._reasons]
        if bad and self._in_order:
            bad = list(range(bad[0], self._num_blocks))
        reason = self._reasons.get(bad[0], LATE) if bad else ""
        return TransferDone(self.id, tuple(bad), reason, self._seconds)
