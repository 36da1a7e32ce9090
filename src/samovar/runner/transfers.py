"""Between plans and the mover: every transfer that a plan names is reported exactly once, whatever fails."""

from __future__ import annotations

from collections.abc import Sequence
import logging

from samovar.base.ids import TransferId
from samovar.core.plan import Load, Move, StepPlan, Store, TransferDone
from samovar.core.ports import Mover

log = logging.getLogger(__name__)


class Transfers:
    """Used by the thread that submits plans. Owns the mover. Without one every transfer fails, and so it is from the
    moment a mover raises: that is a bug, which costs the cache and not the requests. It is closed first, so that
    nothing writes into blocks that were reported."""

    def __init__(self, mover: Mover | None) -> None:
        self._mover = mover
        self._reason = "missing"
        self._open: dict[TransferId, int] = {}
        """How many blocks each has."""

    def start(self, plan: StepPlan) -> None:
        named: tuple[Load | Store | Move, ...] = (*plan.loads, *plan.stores, *plan.moves)
        if not named:
            return
        for transfer in named:
            self._open[transfer.transfer_id] = len(transfer.keys)
        if self._mover is not None:
            try:
                self._mover.start(plan)
            except Exception:
                self._give_up(self._mover)

    def done(self) -> Sequence[TransferDone]:
        """Transfers that ended since the last call."""
        ended: list[TransferDone] = []
        if self._mover is not None:
            try:
                ended += (done for done in self._mover.done() if done.transfer_id in self._open)
            except Exception:
                self._give_up(self._mover)
        for done in ended:
            self._open.pop(done.transfer_id, None)
        if self._mover is None and self._open:
            ended += (TransferDone(number, tuple(range(n)), self._reason) for number, n in self._open.items())
            self._open.clear()
        return ended

    def close(self) -> None:
        """Idempotent."""
        mover, self._mover = self._mover, None
        if mover is not None:
            mover.close()

    def _give_up(self, mover: Mover) -> None:
        log.exception("the tiers below the device are given up: what moves their bytes failed")
        self._mover, self._reason = None, "io"
        try:
            mover.close()
        except Exception:
            log.exception("and it cannot be closed")
