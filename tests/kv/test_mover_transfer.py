"""What is known of one transfer: which blocks have arrived, and the door that closes when it is over."""

from __future__ import annotations

import threading
import time

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from samovar.base.ids import TransferId
from samovar.core.plan import TransferDone
from samovar.kv.attempt import attempt
from samovar.kv.deadlines import Deadlines
from samovar.kv.transfer import Transfer


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def transfer(num_blocks: int = 4, *, in_order: bool = False, clock: Clock | None = None) -> Transfer:
    return Transfer(TransferId(7), num_blocks, in_order=in_order, clock=clock or Clock())


def test_behind_the_first_failure_everything_failed_when_order_counts() -> None:
    for in_order, failed in ((True, (1, 2, 3)), (False, (1,))):
        one = transfer(in_order=in_order)
        for position in (3, 0, 2):
            one.arrived(position)
        one.fail(1, "checksum")
        assert one.end() == TransferDone(TransferId(7), failed, "checksum", 0.0)


def test_the_reason_is_that_of_the_first_failed_one() -> None:
    one = transfer(in_order=True)
    one.fail(2, "io")
    one.fail(1, "generation")
    one.fail(1, "checksum")
    one.arrived(0)
    done = one.end()
    assert done is not None and (done.failed, done.reason) == ((1, 2, 3), "generation")


def test_seconds_are_those_when_anybody_worked() -> None:
    clock = Clock()
    one = transfer(clock=clock)
    with one.working():
        clock.now = 2.0
        with one.working():
            clock.now = 3.0
    clock.now = 10.0
    with one.working():
        clock.now = 11.5
        done = one.end()
    assert done is not None and done.seconds == 4.5


def test_the_end_waits_for_who_is_writing_and_lets_nobody_in() -> None:
    one, inside, leave, late = transfer(), threading.Event(), threading.Event(), []

    def write() -> None:
        with one.working(), one.writing() as may_write:
            inside.set()
            leave.wait(5)
            if may_write:
                one.arrived(2)

    writer = threading.Thread(target=write)
    writer.start()
    assert inside.wait(5)
    ended: list[TransferDone | None] = []
    ender = threading.Thread(target=lambda: ended.append(one.end()))
    ender.start()
    time.sleep(0.05)
    assert not ended, "somebody is still writing"
    with one.writing() as may_write:
        late.append(may_write)
    assert one.ended and late == [False] and not one.wants(0)
    leave.set()
    writer.join(5), ender.join(5)
    done = ended[0]
    assert done is not None and (done.failed, done.reason) == ((0, 1, 3), "late")
    assert one.end() is None


def test_an_attempt_goes_on_with_what_is_still_wanted() -> None:
    one, moved, errors = transfer(5, in_order=True), [], []
    one.arrived(0)

    def move(positions: list[int]) -> None:
        moved.append(list(positions))
        if 3 in positions:
            raise OSError("made")
        for position in positions:
            one.arrived(position)

    attempt(one, range(5), move, errors.append)
    assert moved == [[1, 2, 3, 4], [1], [2], [3]] and len(errors) == 1
    done = one.end()
    assert done is not None and (done.failed, done.reason) == ((3, 4), "io")


class TransferMachine(RuleBasedStateMachine):
    """Against lists."""

    @initialize(count=st.integers(1, 6), in_order=st.booleans())
    def begin(self, count: int, in_order: bool) -> None:
        self.one = transfer(count, in_order=in_order)
        self.in_order = in_order
        self.blocks: list[str] = [""] * count
        self.over = False

    @rule(at=st.integers(0, 5), reason=st.sampled_from(["", "io", "checksum"]))
    def settle(self, at: int, reason: str) -> None:
        if at >= len(self.blocks) or not self.one.wants(at):
            return
        with self.one.working(), self.one.writing() as may_write:
            assert may_write is not self.over
            if reason:
                self.one.fail(at, reason)
            else:
                self.one.arrived(at)
        self.blocks[at] = reason or "ok"

    @rule()
    def end(self) -> None:
        done = self.one.end()
        if self.over:
            assert done is None
            return
        self.over = True
        bad = [n for n, state in enumerate(self.blocks) if state != "ok"]
        if bad and self.in_order:
            bad = list(range(bad[0], len(self.blocks)))
        assert done is not None and list(done.failed) == bad
        assert done.reason == ((self.blocks[bad[0]] or "late") if bad else "")

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "one"):
            return
        self.one.check()
        failed = [n for n, state in enumerate(self.blocks) if state not in ("", "ok")]
        for n, state in enumerate(self.blocks):
            behind = self.in_order and bool(failed) and failed[0] < n
            assert self.one.wants(n) == (not self.over and not state and not behind)


TestTransferMachine = TransferMachine.TestCase
TestTransferMachine.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


def test_deadlines_come_in_order_and_ended_ones_not_at_all() -> None:
    expired: list[float] = []
    reached = threading.Event()
    began = time.monotonic()
    ones = {delay: transfer() for delay in (0.15, 0.05, 0.1)}

    def expire(one: Transfer) -> None:
        expired.append(next(delay for delay, known in ones.items() if known is one))
        if len(expired) == 2:
            reached.set()

    deadlines = Deadlines(expire, time.monotonic)
    for delay, one in ones.items():
        deadlines.add(one, began + delay)
    ones[0.1].end()
    assert reached.wait(5) and time.monotonic() - began >= 0.15
    deadlines.close()
    assert expired == [0.05, 0.15]
