"""When sessions are to be brought up, against a model that scans all of them."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
import pytest

from samovar.core import timetable
from samovar.core.timetable import LOOKS, Due, Timetable

STREAMS = st.sampled_from(["a1", "a2", "a3", "b1", "b2"])


class TimetableMachine(RuleBasedStateMachine):
    """A stream's tenant is its first letter."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Timetable()
        self.now = 0.0
        self.at: dict[str, float] = {}
        self.taken: tuple[str, Due] | None = None

    @rule(stream=STREAMS, seconds=st.sampled_from([0.0, 1.0, 5.0, 5.0]))
    def expect(self, stream: str, seconds: float) -> None:
        self.table.expect(stream, stream[0], self.now + seconds)
        self.at[stream] = self.now + seconds

    @rule(stream=STREAMS, seconds=st.sampled_from([0.0, 8.0, 80.0]))
    def expect_within(self, stream: str, seconds: float) -> None:
        self.table.expect_within(stream, stream[0], self.now, seconds)
        self.at[stream] = self.now + seconds / LOOKS

    @rule(stream=STREAMS)
    def cancel(self, stream: str) -> None:
        self.table.cancel(stream)
        self.at.pop(stream, None)

    @rule(seconds=st.sampled_from([0.0, 1.0, 3.0]))
    def take(self, seconds: float) -> None:
        self.now += seconds
        self.taken = self.table.take(self.now)
        due = min(self.at.values(), default=self.now + 1.0)
        if due > self.now:
            assert self.taken is None
        else:
            assert self.taken is not None and self.at.pop(self.taken[0]) == due

    @rule()
    def look_again(self) -> None:
        if self.taken is not None and self.taken[0] not in self.at:
            stream, due = self.taken
            self.table.look_again(stream, due, self.now)
            if self.now + due.every_s < due.until_s:
                self.at[stream] = self.now + due.every_s
        self.taken = None

    @invariant()
    def agrees(self) -> None:
        self.table.check()
        assert self.table.next_s == min(self.at.values(), default=None) and len(self.table) == len(self.at)


TestTimetable = TimetableMachine.TestCase
TestTimetable.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_tenants_share_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "MOST_PER_TENANT", 2)
    table = Timetable()
    for stream in ("a1", "a2"):
        assert table.has_room("a")
        table.expect(stream, "a", 1.0)
    assert not table.has_room("a", "a3") and table.has_room("a", "a1") and table.has_room("b")
    table.expect("a1", "a", 2.0)
    table.cancel("a2")
    assert table.has_room("a", "a3")
    table.check()


def test_a_flood_of_words_on_one_stream_takes_no_room() -> None:
    table = Timetable()
    for i in range(10_000):
        table.expect("a", "a", float(i))
        table.check() if i % 1000 == 0 else None
    assert len(table) == 1 and len(table._heap) < 100
    assert table.take(1e9) is not None and table.take(1e9) is None
