"""Bytes and disk as a worker would move them, one key per block; and what the tiers should have, by brute force."""

from __future__ import annotations

from dataclasses import dataclass, field

from samovar.core.plan import Move, TransferDone


def chain(tokens: list[int]) -> tuple[bytes, ...]:
    """Readable keys: a key is the prefix itself, so its parent is the key without its last byte."""
    return tuple(bytes(tokens[: i + 1]) for i in range(len(tokens)))


@dataclass
class TierModel:
    """`arrived` of `coming` wait for their parent, and so do `orphans`, that were there before."""

    have: set[bytes] = field(default_factory=set)
    coming: set[bytes] = field(default_factory=set)
    arrived: set[bytes] = field(default_factory=set)
    orphans: set[bytes] = field(default_factory=set)

    def expects(self, parent: bytes) -> bool:
        return not parent or parent in self.have or parent in self.coming

    def begin(self, keys: tuple[bytes, ...]) -> set[bytes]:
        """Those that will stay."""
        stay = set()
        for key in keys:
            if key not in self.have and key not in self.coming and self.expects(key[:-1]):
                stay.add(key)
                self.coming.add(key)
        return stay

    def end(self, stay: set[bytes], bad: set[bytes]) -> None:
        self.coming -= stay & bad
        self.arrived |= stay - bad
        again = True
        while again:
            again = False
            for key in sorted(self.arrived, key=len):
                if key[:-1] in self.coming:
                    continue
                self.arrived.discard(key)
                self.coming.discard(key)
                if len(key) == 1 or key[:-1] in self.have:
                    self.have.add(key)
                again = True

        for key in sorted(self.orphans, key=len):
            if key[:-1] in self.have:
                self.orphans.discard(key)
                self.have.add(key)

    def damaged(self, key: bytes) -> None:
        """It alone goes."""
        if key in self.have:
            self.orphans |= {other for other in self.have if other.startswith(key)} - {key}
            self.forget(key)

    def distrust(self, keys: tuple[bytes, ...]) -> None:
        self.forget(keys[0])
        self.orphans = {orphan for orphan in self.orphans if not any(orphan.startswith(key) for key in keys)}

    def forget(self, key: bytes) -> None:
        self.have = {other for other in self.have if not other.startswith(key)}


@dataclass
class Job:
    """A transfer that was handed out. `fills`: the keys at its end that fill slots (of the disk, for a write)."""

    id: int
    kind: str
    keys: tuple[bytes, ...]
    slots: tuple[int, ...] = ()
    generations: tuple[int, ...] = ()
    parents: tuple[bytes, ...] = ()
    fills: int = 0
    stay: set[bytes] = field(default_factory=set)
    doomed: set[bytes] = field(default_factory=set)
    performed: bool = False
    failed: tuple[int, ...] = ()
    reason: str = ""

    @staticmethod
    def of(move: Move) -> Job:
        fills = 0 if move.op == "delete" else len(move.keys)
        return Job(move.transfer_id, move.op, move.keys, move.slots, move.generations, move.parents, fills)

    def done(self, seconds: float = 0.001) -> TransferDone:
        return TransferDone(self.id, self.failed, self.reason, seconds)


@dataclass
class World:
    """Asserts that every slot still holds what a job was told it would, whenever the job is done."""

    memory: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    disk: set[bytes] = field(default_factory=set)

    def perform(self, job: Job, failed: tuple[int, ...] = (), reason: str = "") -> None:
        assert not job.performed
        job.performed, job.failed, job.reason = True, failed, reason if failed else ""
        for i, key in enumerate(job.keys):
            if i in failed:
                if job.kind == "write" and reason == "late":
                    self.disk.add(key)  # it got through after all
                continue
            self._one(job, i, key)

    def _one(self, job: Job, i: int, key: bytes) -> None:
        if job.kind == "delete":
            self.disk.discard(key)
            return
        place = (key, job.generations[i])
        if job.kind == "store":
            self.memory[job.slots[i]] = place
        elif job.kind == "write" or i < len(job.keys) - job.fills:
            assert self.memory.get(job.slots[i]) == place, "a pinned slot changed hands"
            if job.kind == "write":
                assert job.parents[i] == key[:-1], "not the parent"
                self.disk.add(key)
        else:
            assert key in self.disk, "read of a record that is gone"
            self.memory[job.slots[i]] = place
