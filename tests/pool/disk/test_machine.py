"""The log against a dict, through overwrites, deletions, compaction, crashes and power cuts."""

from __future__ import annotations

from pathlib import Path
import random
import shutil
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.pool.disk.helpers import CAPACITY_BYTES, abandon, block, data_of, key_of, open_log, physical_bytes, read
from tests.pool.disk.power import PowerFiles

CAPACITY = 768 << 10
SEGMENT = 24 << 10
numbers = st.integers(0, 120)


class DiskLogMachine(RuleBasedStateMachine):
    """`model`: the version of every record. `limbo`: what was deleted since the last commit and may come back."""

    @initialize(punching=st.booleans(), power=st.booleans())
    def start(self, punching: bool, power: bool) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.punching = punching
        self.power = power
        self.model: dict[int, int] = {}
        self.limbo: dict[int, int] = {}
        self.version = 0
        self.open()

    def open(self) -> None:
        self.files = PowerFiles() if self.power else None
        self.log = open_log(
            self.folder,
            capacity_bytes=CAPACITY,
            segment_bytes=SEGMENT,
            punching=self.punching,
            files=self.files,
            fsync=self.power,
        )

    @rule(batch=st.lists(numbers, min_size=1, max_size=12))
    def write(self, batch: list[int]) -> None:
        self.version += 1
        outcomes = self.log.write([block(n, self.version) for n in batch])
        for number, outcome in zip(batch, outcomes, strict=True):
            if outcome == "ok":
                self.model[number] = self.version
                self.limbo = {}
        if len(self.model) + len(batch) <= self.log.max_records:
            assert set(outcomes) == {"ok"}, "there was room"

    @rule(first=numbers, count=st.integers(1, 60))
    def write_many(self, first: int, count: int) -> None:
        self.write([(first + n) % 121 for n in range(count)])

    @rule(batch=st.lists(numbers, max_size=12))
    def delete(self, batch: list[int]) -> None:
        self.log.delete([key_of(n) for n in batch])
        for number in batch:
            if number in self.model:
                self.limbo[number] = self.model.pop(number)

    @rule(first=numbers, count=st.integers(1, 80), keep=st.integers(2, 9))
    def delete_most(self, first: int, count: int, keep: int) -> None:
        self.delete([(first + n) % 121 for n in range(count) if n % keep])

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == "ok"
        self.limbo = {}

    @rule(budget=st.integers(1, 200_000))
    def compact(self, budget: int) -> None:
        self.log.compact(budget)
        self.limbo = {}

    @rule(batch=st.lists(numbers, max_size=8))
    def read(self, batch: list[int]) -> None:
        for number in batch:
            expected = data_of(number, self.model[number]) if number in self.model else "missing"
            assert read(self.log, number) == expected

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.limbo = {}
        self.reopened()

    @rule(seed=st.integers(0, 1 << 30))
    def crash(self, seed: int) -> None:
        abandon(self.log)
        if self.files is not None:
            self.files.cut(random.Random(seed))
        self.reopened()

    def reopened(self) -> None:
        self.open()
        found = {int.from_bytes(info.key, "big") for info in self.log.recovered()}
        assert found >= set(self.model), "what was acknowledged is gone"
        assert found <= set(self.model) | set(self.limbo), "what was deleted came back"
        for number in found - set(self.model):
            self.model[number] = self.limbo[number]
        self.limbo = {}
        self.read(sorted(self.model))

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "log"):
            return
        self.log.check()
        assert self.log.stats().num_records == len(self.model)
        assert physical_bytes(self.folder) <= CAPACITY * 1.1

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.read(sorted(self.model))
            self.log.close()
            shutil.rmtree(self.folder)


TestDiskLog = DiskLogMachine.TestCase
TestDiskLog.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_the_numbers_reach_every_limit(tmp_path: Path) -> None:
    """Of the machine above: its keys do not fit, so it meets "full" and compaction under pressure."""
    with open_log(tmp_path, capacity_bytes=CAPACITY, segment_bytes=SEGMENT) as log:
        assert 20 < log.max_records < 121 and CAPACITY < CAPACITY_BYTES
