"""Several connectors as one: what is computed goes to all of them, and a load comes from the one that has most.

They share one address space of host slots, in which each has a part, so that the worker's half needs to know of one
host tier only. Ids of their moves are interleaved: move n of connector i of k is -(k * n + i).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from samovar.base.ids import BlockKey, TransferId
from samovar.core.plan import Move, TransferDone
from samovar.core.ports import Connector, Reserved, TierMatch
from samovar.core.stats import TierReport


@dataclass(frozen=True, slots=True)
class Part:
    """`num_slots`: of its host tier; the parts lie one behind the other in the common one."""

    name: str
    connector: Connector
    num_slots: int


@dataclass(frozen=True, slots=True)
class _Share:
    """`count` of a transfer's keys, from `start` on, are connector `part`'s."""

    part: int
    start: int
    count: int


class MultiConnector:
    """`core.ports.Connector`. A tier keeps its name if no other has the same; else it is "name:tier"."""

    def __init__(self, parts: Sequence[Part]) -> None:
        assert parts
        self._parts = tuple(parts)
        self._first_slot = [sum(part.num_slots for part in parts[:i]) for i in range(len(parts))]
        self._routes: dict[TransferId, tuple[_Share, ...]] = {}
        known = Counter(report.tier for part in parts for report in part.connector.report())
        self._shared_names = {name for name, count in known.items() if count > 1}

    # -- loads and stores ------------------------------------------------------------------------------------------

    def lookup(self, keys: Sequence[BlockKey], now: float) -> TierMatch:
        """The longest match, among equals the soonest. While one of them does not know yet, the others' best is not the
        answer; who asked says when that is over."""
        matches = self._lookups(keys, now)
        part = _best(matches)
        shares = tuple(msgspec.structs.replace(s, tier=self._named(part, s.tier)) for s in matches[part].shares)
        open_s = [match.deadline_s for match in matches if match.asked]
        if not open_s or matches[part].num_blocks == len(keys):
            return TierMatch(shares)
        return TierMatch(shares, True, max(open_s))

    def _lookups(self, keys: Sequence[BlockKey], now: float) -> list[TierMatch]:
        return [part.connector.lookup(keys, now) for part in self._parts]

    def load(self, transfer_id: TransferId, keys: Sequence[BlockKey], now: float) -> Reserved:
        part = _best(self._lookups(keys, now))
        reserved = self._parts[part].connector.load(transfer_id, keys, now)
        if not reserved.slots:
            return reserved
        self._routes[transfer_id] = (_Share(part, 0, len(reserved.slots)),)
        return Reserved(self._outer_slots(part, reserved.slots), reserved.generations, reserved.from_disk)

    def store(
        self, transfer_id: TransferId, keys: Sequence[BlockKey], parent: BlockKey, stream: str, now: float
    ) -> tuple[tuple[int, ...], Reserved]:
        """One store into all of them: a position stands in the answer once for each that takes the block."""
        wanted: tuple[int, ...] = ()
        slots: tuple[int, ...] = ()
        generations: tuple[int, ...] = ()
        shares: list[_Share] = []
        for i, part in enumerate(self._parts):
            chosen, reserved = part.connector.store(transfer_id, keys, parent, stream, now)
            if chosen:
                shares.append(_Share(i, len(wanted), len(chosen)))
                wanted += chosen
                slots += self._outer_slots(i, reserved.slots)
                generations += reserved.generations
        if shares:
            self._routes[transfer_id] = tuple(shares)
        return wanted, Reserved(slots, generations)

    def _outer_slots(self, part: int, slots: Sequence[int]) -> tuple[int, ...]:
        first = self._first_slot[part]
        return tuple(first + slot for slot in slots)

    # -- moves and reports -----------------------------------------------------------------------------------------

    def moves(self, now: float) -> Sequence[Move]:
        found: list[Move] = []
        for i, part in enumerate(self._parts):
            for move in part.connector.moves(now):
                assert move.transfer_id < 0
                outer = TransferId(move.transfer_id * len(self._parts) - i)
                slots = self._outer_slots(i, move.slots)
                found.append(
                    Move(outer, move.op, move.group, move.keys, slots, move.generations, move.parents, move.stream)
                )
        return found

    def transferred(self, done: TransferDone, now: float) -> None:
        if done.transfer_id < 0:
            inner, part = divmod(-done.transfer_id, len(self._parts))
            report = TransferDone(TransferId(-inner), done.failed, done.reason, done.seconds)
            self._parts[part].connector.transferred(report, now)
            return
        for share in self._routes.pop(done.transfer_id, ()):
            failed = tuple(i - share.start for i in done.failed if 0 <= i - share.start < share.count)
            report = TransferDone(done.transfer_id, failed, done.reason if failed else "", done.seconds)
            self._parts[share.part].connector.transferred(report, now)

    def turn_ended(self, stream: str, keys: Sequence[BlockKey], *, keep: bool, now: float) -> None:
        for part in self._parts:
            part.connector.turn_ended(stream, keys, keep=keep, now=now)

    def wanted(self, keys: Sequence[BlockKey], now: float) -> None:
        for part in self._parts:
            part.connector.wanted(keys, now)

    def distrust(self, keys: Sequence[BlockKey], now: float) -> None:
        for part in self._parts:
            part.connector.distrust(keys, now)

    @property
    def wake_at(self) -> float | None:
        times = [at for part in self._parts if (at := part.connector.wake_at) is not None]
        return min(times, default=None)

    # -- what it looks like ----------------------------------------------------------------------------------------

    def restore_s(self, key: BlockKey) -> float | None:
        times = [s for part in self._parts if (s := part.connector.restore_s(key)) is not None]
        return min(times, default=None)

    def blocks_of(self, keys: Sequence[BlockKey]) -> dict[str, int]:
        return {
            self._named(i, tier): count
            for i, part in enumerate(self._parts)
            for tier, count in part.connector.blocks_of(keys).items()
        }

    def report(self) -> tuple[TierReport, ...]:
        return tuple(
            _renamed(report, self._named(i, report.tier))
            for i, part in enumerate(self._parts)
            for report in part.connector.report()
        )

    def _named(self, part: int, tier: str) -> str:
        return f"{self._parts[part].name}:{tier}" if tier in self._shared_names else tier

    def check(self) -> None:
        for part in self._parts:
            part.connector.check()
        for shares in self._routes.values():
            ends = [0, *(share.start + share.count for share in shares)]
            assert [share.start for share in shares] == ends[:-1], "a transfer with gaps"


def _best(matches: Sequence[TierMatch]) -> int:
    """The longest match, among equals the soonest."""
    return min(range(len(matches)), key=lambda i: (-matches[i].num_blocks, sum(s.seconds for s in matches[i].shares)))


def _renamed(report: TierReport, tier: str) -> TierReport:
    return msgspec.structs.replace(report, tier=tier)
