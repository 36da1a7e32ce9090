"""What moves in a transfer, stage by stage: bytes over one channel, or off the disk and on to the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from samovar.sim.links import Channel, Flow
from samovar.sim.links_events import LinkEvents
from samovar.sim.mover_transfer import Transfer

Ready = Callable[[], Sequence[int]]
"""Looks at what there is when a part is first worked on: the positions that can be moved. The others have failed."""
Arrived = Callable[[Sequence[int]], None]
"""Their bytes are there."""
Ended = Callable[["StraightPart | DiskLoadPart", float], None]
"""Gets the part, and the moment at which all of it had moved; it drops the part from its lane."""


class StraightPart:
    """Blocks over one channel, one after the other."""

    def __init__(
        self,
        events: LinkEvents,
        transfer: Transfer,
        channel: Channel,
        block_bytes: float,
        num_pieces: int,
        ready: Ready,
        arrived: Arrived,
        ended: Ended,
    ) -> None:
        self.num_pieces = num_pieces
        self._events = events
        self._transfer = transfer
        self._channel = channel
        self._block_bytes = block_bytes
        self._ready = ready
        self._arrived = arrived
        self._ended = ended
        self._moving: Sequence[int] | None = None
        self._left_bytes = 0.0
        self._flow: Flow | None = None

    def run(self, now: float) -> None:
        first = self._moving is None
        if self._moving is None:
            self._moving = self._ready()
            self._left_bytes = len(self._moving) * self._block_bytes
        self._transfer.work_begins(now)
        self._flow = self._events.begin(self._channel, self._left_bytes, now, self._end, latency=first)

    def pause(self, now: float) -> None:
        if self._flow is not None:
            self._left_bytes = self._events.take_out(self._channel, self._flow, now)
            self._flow = None
            self._transfer.work_stops(now)

    def give_up(self, now: float, *, keep: bool) -> None:
        """`keep`: whole blocks that have moved so far have arrived."""
        self.pause(now)
        if keep and self._moving and self._block_bytes > 0.0:
            moved_bytes = len(self._moving) * self._block_bytes - self._left_bytes
            self._arrive(self._moving[: int(moved_bytes // self._block_bytes)])

    def _end(self, at_s: float) -> None:
        assert self._moving is not None
        self._flow = None
        self._transfer.work_stops(at_s)
        self._arrive(self._moving)
        self._ended(self, at_s)

    def _arrive(self, positions: Sequence[int]) -> None:
        self._arrived(positions)
        self._transfer.arrived(positions)


class DiskLoadPart:
    """Off the disk into slots, and on to the device, batch by batch: while one is copied the next is read. Of both
    there is one at a time."""

    def __init__(
        self,
        events: LinkEvents,
        transfer: Transfer,
        ways: tuple[tuple[Channel, float], tuple[Channel, float]],
        batch_blocks: int,
        num_pieces: int,
        ready: Ready,
        read: Arrived,
        ended: Ended,
    ) -> None:
        """`ways`: channel and bytes of a block, of reading and of copying."""
        self.num_pieces = num_pieces
        self._events = events
        self._transfer = transfer
        (self._disk, self._disk_bytes), (self._device, self._device_bytes) = ways
        self._batch_blocks = batch_blocks
        self._ready = ready
        self._read = read
        self._ended = ended
        self._batches: list[Sequence[int]] = []
        self._waiting: Sequence[int] | None = None
        """Read, and not copied because the batch before it still is."""
        self._reading: tuple[Flow, Sequence[int]] | None = None
        self._copying: tuple[Flow, Sequence[int]] | None = None
        self._at_work = False

    def run(self, now: float) -> None:
        self._at_work = True
        self._transfer.work_begins(now)
        found = self._ready()
        self._batches = [found[i : i + self._batch_blocks] for i in range(0, len(found), self._batch_blocks)] or [()]
        self._read_next(now)

    def pause(self, now: float) -> None:
        raise AssertionError("loads are the first queue: nothing goes before one that has begun")

    def give_up(self, now: float, *, keep: bool) -> None:
        """What is on the device has arrived, whatever `keep` says."""
        for channel, going in ((self._disk, self._reading), (self._device, self._copying)):
            if going is not None:
                self._events.take_out(channel, going[0], now)
        self._reading = self._copying = None
        if self._at_work:
            self._at_work = False
            self._transfer.work_stops(now)

    def _read_next(self, now: float) -> None:
        batch = self._batches.pop(0)
        flow = self._events.begin(self._disk, len(batch) * self._disk_bytes, now, self._was_read)
        self._reading = (flow, batch)

    def _copy(self, batch: Sequence[int], now: float) -> None:
        flow = self._events.begin(self._device, len(batch) * self._device_bytes, now, self._was_copied)
        self._copying = (flow, batch)
        if self._batches:
            self._read_next(now)

    def _was_read(self, at_s: float) -> None:
        assert self._reading is not None
        _, batch = self._reading
        self._reading = None
        self._read(batch)
        if self._copying is None:
            self._copy(batch, at_s)
        else:
            self._waiting = batch

    def _was_copied(self, at_s: float) -> None:
        assert self._copying is not None
        _, batch = self._copying
        self._copying = None
        self._transfer.arrived(batch)
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._copy(waiting, at_s)
        elif self._reading is None:
            self._at_work = False
            self._transfer.work_stops(at_s)
            self._ended(self, at_s)
