"""Every transfer of a plan is reported exactly once: by the mover, or in its place once it has failed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from samovar.base.ids import BlockId, TransferId
from samovar.core.plan import Load, Move, StepPlan, Store, TransferDone
from samovar.runner.transfers import Transfers


def plan(step: int, *numbers: int) -> StepPlan:
    """A load, a store and a move (of negative id) of two blocks each, for every number."""
    keys, blocks = (b"a" * 16, b"b" * 16), (BlockId(0), BlockId(1))
    return StepPlan(
        step,
        loads=tuple(Load(TransferId(3 * n), 0, keys, blocks) for n in numbers),
        stores=tuple(Store(TransferId(3 * n + 1), 0, keys, blocks) for n in numbers),
        moves=tuple(Move(TransferId(-n - 1), "delete", 0, keys) for n in numbers),
    )


class Scripted:
    """Reports what it was told to; raises in the call named `breaks`."""

    def __init__(self, breaks: str = "") -> None:
        self.breaks = breaks
        self.reports: list[TransferDone] = []
        self.started: list[int] = []
        self.closed = 0

    def start(self, plan: StepPlan) -> None:
        if self.breaks == "start":
            raise RuntimeError("no thread for it")
        self.started.append(plan.step)

    def done(self) -> Sequence[TransferDone]:
        if self.breaks == "done":
            raise RuntimeError("lost count")
        reports, self.reports = self.reports, []
        return reports

    def close(self) -> None:
        self.closed += 1
        if self.breaks:
            raise RuntimeError("it does not end either")


def numbers(done: Sequence[TransferDone]) -> list[int]:
    return sorted(report.transfer_id for report in done)


def test_reports_pass_through_and_plans_without_transfers_do_not() -> None:
    mover = Scripted()
    transfers = Transfers(mover)
    transfers.start(StepPlan(0))
    transfers.start(plan(1, 0))
    assert mover.started == [1] and not transfers.done()
    good = TransferDone(TransferId(0), (1,), "checksum", 0.5)
    mover.reports = [good]
    assert transfers.done() == [good]
    transfers.close()
    transfers.close()
    assert mover.closed == 1


def test_a_second_report_of_a_transfer_is_dropped() -> None:
    mover = Scripted()
    transfers = Transfers(mover)
    transfers.start(plan(0, 0))
    mover.reports = [TransferDone(TransferId(0))]
    assert numbers(transfers.done()) == [0]
    mover.reports = [TransferDone(TransferId(0)), TransferDone(TransferId(99)), TransferDone(TransferId(1))]
    assert numbers(transfers.done()) == [1]


@pytest.mark.parametrize("breaks", ["start", "done"])
def test_a_mover_that_raises_is_closed_and_its_transfers_fail(breaks: str, caplog: pytest.LogCaptureFixture) -> None:
    """Those that it had begun before too; later ones fail at once, and nobody is told twice."""
    mover = Scripted()
    transfers = Transfers(mover)
    transfers.start(plan(0, 0))
    mover.reports = [TransferDone(TransferId(1))]
    assert numbers(transfers.done()) == [1]
    mover.breaks = breaks
    transfers.start(plan(1, 1))
    failed = transfers.done()
    assert numbers(failed) == [-2, -1, 0, 3, 4]
    assert {(report.failed, report.reason) for report in failed} == {((0, 1), "io")}
    assert mover.closed == 1 and caplog.text.count("given up") == 1
    transfers.start(plan(2, 2))
    assert numbers(transfers.done()) == [-3, 6, 7] and not transfers.done()
    assert mover.started == ([0] if breaks == "start" else [0, 1])
    transfers.close()
    assert mover.closed == 1


def test_without_a_mover_everything_is_missing() -> None:
    transfers = Transfers(None)
    transfers.start(plan(0, 0))
    assert {(report.failed, report.reason) for report in transfers.done()} == {((0, 1), "missing")}
    assert not transfers.done()
