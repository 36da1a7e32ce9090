"""The worker's half of the tiers on the virtual clock: knows when each transfer ends instead of moving bytes.

Order, lanes and pieces are the real mover's (`kv.mover`): memory (loads before stores), reads from disk (loads before
what is only expected to be wanted), writes. What a slot and the disk hold is kept, so a slot that was given to another
key or generation fails here as it does there. Deadlines are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from samovar.base.ids import TransferId
from samovar.core.plan import Load, Move, StepPlan, Store, TransferDone
from samovar.kv.mover import MEMORY_PIECE_BYTES, READ_PIECE_BYTES, WRITE_PIECE_BYTES, MoverSettings
from samovar.sim.links_events import Directions, LinkEvents, Timer
from samovar.sim.mover_contents import Contents
from samovar.sim.mover_lane import Lane
from samovar.sim.mover_parts import Arrived, DiskLoadPart, Ready, StraightPart
from samovar.sim.mover_transfer import Transfer

MOST_BATCHES = 16
"""Of one load from disk: what is read and copied at once is larger where that bounds their number."""

_FIRST, _SECOND = 0, 1

_Part = StraightPart | DiskLoadPart


@dataclass(frozen=True, slots=True)
class Ways:
    """How bytes of one rank go, and what a block has of them."""

    host: Directions
    """Of one of its devices; the others do the same at the same time over links of their own."""
    block_bytes: float
    """On one device."""
    ssd: Directions | None = None
    """The machine's. None: nothing is ever on disk."""
    ssd_block_bytes: float = 0.0
    """Of all devices of the rank."""


@dataclass(slots=True)
class _Open:
    transfer: Transfer
    timer: Timer
    keeps: bool
    """What had moved when it is late has arrived. A commit to the disk counts as a whole."""
    lanes: dict[_Part, Lane] = field(default_factory=dict)
    """Of parts that have not ended."""


class VirtualMover:
    """`sim.seam.VirtualMover` of one rank. Movers of one machine share its `LinkEvents`: `next_end` may name a moment
    at which another's transfer ends, and `ended` then has nothing."""

    def __init__(
        self, events: LinkEvents, ways: Ways, contents: Contents | None = None, settings: MoverSettings | None = None
    ) -> None:
        self._events = events
        self._ways = ways
        self._contents = Contents() if contents is None else contents
        self._settings = settings or MoverSettings()
        self._memory = Lane(self._settings.memory_threads, 2)
        self._reads = Lane(self._settings.read_threads, 2)
        self._writes = Lane(1, 1)
        self._open: dict[TransferId, _Open] = {}
        self._finished: list[tuple[float, TransferDone]] = []

    # -- the seam --------------------------------------------------------------------------------------------------

    def start(self, plan: StepPlan, now: float) -> None:
        self._events.advance(now)
        for load in plan.loads:
            self._load(load, now)
        for store in plan.stores:
            self._store(store, now)
        for move in plan.moves:
            self._move(move, now)
        # What a runner does in its step: nothing that is not kept can differ.
        self._finished += [(now, TransferDone(compare.transfer_id)) for compare in plan.compares]

    def next_end(self) -> float | None:
        if self._finished:
            return max(self._finished[0][0], self._events.now_s)
        return self._events.next_s() if self._open else None

    def ended(self, now: float) -> list[TransferDone]:
        self._events.advance(now)
        finished, self._finished = self._finished, []
        return [done for _, done in finished]

    # -- transfers -------------------------------------------------------------------------------------------------

    def _load(self, load: Load, now: float) -> None:
        opened, every = self._new(load.transfer_id, len(load.keys), now, in_order=True), range(len(load.keys))
        near, far = every[: len(every) - load.from_disk], every[len(every) - load.from_disk :]
        parts: list[tuple[Lane, int, _Part]] = []
        if near:
            ready = partial(self._contents.leading_sealed, opened.transfer, load, near)
            parts.append((self._memory, _FIRST, self._over_host(opened, ready, _nothing, len(near), inward=True)))
        if far:
            parts.append((self._reads, _FIRST, self._off_disk(opened, load, far)))
        self._begin(opened, parts, now)

    def _store(self, store: Store, now: float) -> None:
        opened, every = self._new(store.transfer_id, len(store.keys), now), range(len(store.keys))
        ready, arrived = partial(self._contents.unseal, store, every), partial(self._contents.seal, store)
        part = self._over_host(opened, ready, arrived, len(every), inward=False)
        self._begin(opened, [(self._memory, _SECOND, part)] if every else [], now)

    def _move(self, move: Move, now: float) -> None:
        opened = self._new(move.transfer_id, len(move.keys), now, keeps=move.op == "read")
        contents, transfer, every = self._contents, opened.transfer, range(len(move.keys))
        lane, queue = (self._reads, _SECOND) if move.op == "read" else (self._writes, _FIRST)
        ready: Ready
        arrived: Arrived
        match move.op:
            case "read":
                ready, arrived = partial(contents.on_disk, transfer, move, every), partial(contents.seal, move)
            case "write":
                ready, arrived = partial(contents.all_sealed, transfer, move, every), partial(contents.write, move)
            case "delete":
                ready, arrived = partial(_all, every), partial(contents.delete, move)
        part = self._with_disk(opened, ready, arrived, len(every), op=move.op)
        self._begin(opened, [(lane, queue, part)] if every else [], now)

    def _new(
        self, transfer_id: TransferId, num_blocks: int, now: float, *, in_order: bool = False, keeps: bool = True
    ) -> _Open:
        assert transfer_id not in self._open, f"transfer {transfer_id} is under way already"
        settings = self._settings
        allowed_s = settings.deadline_s + num_blocks * self._ways.block_bytes / settings.slowest_bytes_per_s
        timer = self._events.at(now + allowed_s, partial(self._late, transfer_id))
        opened = _Open(Transfer(transfer_id, num_blocks, in_order=in_order), timer, keeps)
        self._open[transfer_id] = opened
        return opened

    def _begin(self, opened: _Open, parts: list[tuple[Lane, int, _Part]], now: float) -> None:
        opened.lanes.update((part, lane) for lane, _, part in parts)
        for lane, queue, part in parts:
            lane.put(queue, part, now)
        if not parts:
            self._report(opened, now)

    def _part_ended(self, opened: _Open, part: _Part, at_s: float) -> None:
        lane = opened.lanes.pop(part)
        if not opened.lanes:
            self._report(opened, at_s)
        lane.drop(part, at_s)

    def _late(self, transfer_id: TransferId, at_s: float) -> None:
        opened = self._open[transfer_id]
        lanes, opened.lanes = opened.lanes, {}
        for part in lanes:
            part.give_up(at_s, keep=opened.keeps)
        self._report(opened, at_s)
        for part, lane in lanes.items():
            lane.drop(part, at_s)

    def _report(self, opened: _Open, at_s: float) -> None:
        self._events.call_off(opened.timer)
        del self._open[opened.transfer.id]
        self._finished.append((at_s, opened.transfer.end()))

    # -- parts -----------------------------------------------------------------------------------------------------

    def _over_host(
        self, opened: _Open, ready: Ready, arrived: Arrived, num_blocks: int, *, inward: bool
    ) -> StraightPart:
        ways = self._ways
        channel = ways.host.inward if inward else ways.host.outward
        pieces = self._num_pieces(num_blocks, MEMORY_PIECE_BYTES)
        ended = partial(self._part_ended, opened)
        return StraightPart(self._events, opened.transfer, channel, ways.block_bytes, pieces, ready, arrived, ended)

    def _with_disk(
        self, opened: _Open, ready: Ready, arrived: Arrived, num_blocks: int, *, op: Literal["read", "write", "delete"]
    ) -> StraightPart:
        ways = self._ways
        assert ways.ssd is not None, "a move without a disk"
        channel = ways.ssd.inward if op == "read" else ways.ssd.outward
        size = 0.0 if op == "delete" else ways.ssd_block_bytes
        pieces = self._num_pieces(num_blocks, READ_PIECE_BYTES if op == "read" else WRITE_PIECE_BYTES)
        ended = partial(self._part_ended, opened)
        return StraightPart(self._events, opened.transfer, channel, size, pieces, ready, arrived, ended)

    def _off_disk(self, opened: _Open, load: Load, positions: range) -> DiskLoadPart:
        """As many pieces as there are threads are read at once, end together and are copied together."""
        ways, transfer = self._ways, opened.transfer
        assert ways.ssd is not None, "a load from disk without a disk"
        at_once = self._settings.read_threads * max(1, int(READ_PIECE_BYTES // ways.block_bytes))
        return DiskLoadPart(
            self._events,
            transfer,
            ((ways.ssd.inward, ways.ssd_block_bytes), (ways.host.inward, ways.block_bytes)),
            max(at_once, -(-len(positions) // MOST_BATCHES)),
            self._num_pieces(len(positions), READ_PIECE_BYTES),
            partial(self._contents.on_disk, transfer, load, positions),
            partial(self._contents.seal, load),
            partial(self._part_ended, opened),
        )

    def _num_pieces(self, num_blocks: int, piece_bytes: int) -> int:
        blocks = max(1, int(piece_bytes // self._ways.block_bytes))
        return max(1, -(-num_blocks // blocks))

    def check(self) -> None:
        """Recompute every invariant; raises AssertionError."""
        for lane in (self._memory, self._reads, self._writes):
            lane.check()
        assert all(opened.lanes and not opened.timer.gone for opened in self._open.values())
        times = [at_s for at_s, _ in self._finished]
        assert times == sorted(times) and all(at_s <= self._events.now_s for at_s in times)


def _nothing(positions: Sequence[int]) -> None:
    """A load leaves slots as they are."""


def _all(positions: range) -> Sequence[int]:
    return positions
