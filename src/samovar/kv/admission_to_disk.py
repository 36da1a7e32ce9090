"""What goes to disk, and when: the blocks of turns that ended and are to survive a restart, the most valuable
conversations first, in batches, within a budget. A block is written from its slot in the host tier, after its parent.

Invariant: a turn is remembered until all of it is on disk or the rest of it is given up, counted by its reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from samovar.base.ids import BlockKey
from samovar.core.plan import Move
from samovar.kv.deletions import Deletions
from samovar.kv.orphans import Orphans
from samovar.kv.tier import Filling, Tier
from samovar.kv.under_way import Transfers, UnderWay, split
from samovar.kv.write_budget import WriteBudget
from samovar.kv.write_holds import WriteHolds

RETRY_S = 0.5
"""A disk that was full gets so long to make room, and one on which nothing was worth less is looked at again after it.
One that failed gets so long to recover; doubled with every failure in a row, up to:"""
LONGEST_PAUSE_S = 60.0
MOST_TURNS = 1000
"""Of those that wait for the budget; the oldest are given up."""
_WORTHWHILE = 4
"""A batch waits until the budget allows this share of it: commits cost the same for one block and for many."""


@dataclass(slots=True)
class Turn:
    """`keys` from the chain's start."""

    name: str
    stream: str
    keys: Sequence[BlockKey]
    ended_s: float
    not_before_s: float
    num_durable: int = 0
    """Leading blocks that have been on disk since; if there are fewer now, others were worth more."""
    retried: bool = False
    no_room_until_s: float = 0.0
    """Room is not looked for again before, if it is as scarce as it was:"""
    scarce: tuple[int, int, int] = (-1, -1, -1)


class DiskAdmission:
    __slots__ = (
        "_batch_blocks", "_block_bytes", "_budget", "_dear_until", "_deletions", "_disk", "_holds", "_host",
        "_in_flight_blocks",
        "_most_in_flight_blocks", "_num_dear", "_orphans", "_pause_s", "_paused_until", "_transfers", "_turns",
        "wake_at",
    )  # fmt: skip

    def __init__(
        self,
        host: Tier,
        disk: Tier,
        deletions: Deletions,
        orphans: Orphans,
        transfers: Transfers,
        budget: WriteBudget,
        block_bytes: int,
        batch_blocks: int,
        most_in_flight_blocks: int,
    ) -> None:
        """`batch_blocks`: of one move. `most_in_flight_blocks`: handed out and not reported; they are pinned."""
        self._host = host
        self._disk = disk
        self._deletions = deletions
        self._orphans = orphans
        self._transfers = transfers
        self._budget = budget
        self._block_bytes = block_bytes
        self._batch_blocks = batch_blocks
        self._most_in_flight_blocks = most_in_flight_blocks
        self._in_flight_blocks = 0
        self._holds = WriteHolds(host)
        self._turns: dict[str, Turn] = {}
        self._pause_s = RETRY_S
        self._paused_until = 0.0
        """Nothing is handed out before, since the disk failed."""
        self._dear_until = 0.0
        """Nor before this, since every turn that waits is more than the budget allows so far."""
        self._num_dear = 0
        """Of the turns of one call of `moves`."""
        self.wake_at: float | None = None
        """When there may be something to write though nothing happened before, as of the last `moves`."""

    @property
    def busy(self) -> bool:
        return bool(self._turns)

    def turn_ended(self, stream: str, keys: Sequence[BlockKey], now: float) -> None:
        """These are to be on disk soon. What an earlier turn of the stream had left is replaced, unless these are only
        a part of it, as after a request that was stopped early."""
        name = stream or keys[-1].hex()
        earlier = self._turns.get(name)
        if earlier is not None and len(keys) < len(earlier.keys) and earlier.keys[len(keys) - 1] == keys[-1]:
            return
        self._turns.pop(name, None)
        if self._disk.match(keys) < len(keys):
            self._turns[name] = Turn(name, stream, keys, now, now)
            self._dear_until = 0.0
        if len(self._turns) > MOST_TURNS:
            oldest = next(iter(self._turns.values()))
            self._give_up(oldest, self._disk.match(oldest.keys), "budget")
            self._turns.pop(oldest.name, None)  # also where its start is on disk

    def dropped(self, stream: str, keys: Sequence[BlockKey]) -> None:
        """Nobody will want these of the stream again: what is not written yet stays unwritten."""
        turn = self._turns.get(stream)
        if turn is not None:
            unwanted = set(keys)
            self._cut(turn, next((i for i, key in enumerate(turn.keys) if key in unwanted), len(turn.keys)))

    def lift_budget(self) -> None:
        """What waits is written as fast as the disk takes it."""
        self._budget.lift()
        self._dear_until = 0.0

    def chain_broke(self) -> None:
        """What was on the disk is not findable there any more, though nothing was worth more."""
        for turn in self._turns.values():
            turn.num_durable = 0

    def num_not_durable(self) -> int:
        """Blocks that are to survive a restart and would not do so now. One that several turns wait for counts for
        each: thousands of keys of each turn are not gone through."""
        return sum(len(turn.keys) - self._disk.match(turn.keys) for turn in self._turns.values())

    # -- handing out -----------------------------------------------------------------------------------------------

    def moves(self, most: int, now: float) -> Iterator[Move]:
        self.wake_at = None
        if not self._turns or self._in_flight_blocks >= self._most_in_flight_blocks:
            return
        if now < (until := max(self._paused_until, self._dear_until)):
            self._wake(until)
            return
        if self._budget.left_bytes(now) < self._block_bytes:
            self._wake(self._budget.when(self._block_bytes, now))
            return
        self._num_dear = 0
        for turn, worth in self._by_value(now):
            while most > 0 and (move := self._next(turn, worth, now)) is not None:
                most -= 1
                yield move
            if most <= 0:
                self._wake(now)
                return
        if self._num_dear == len(self._turns) and self.wake_at is not None:
            self._dear_until = self.wake_at  # thousands of turns are not to be compared in every step until then

    def _by_value(self, now: float) -> list[tuple[Turn, float]]:
        ready: list[tuple[Turn, float]] = []
        scarce = self._scarce()
        for turn in self._turns.values():
            until = turn.not_before_s
            if turn.scarce == scarce:
                until = max(until, turn.no_room_until_s)
            if until > now:
                self._wake(until)
            else:
                ready.append((turn, self._host.value(turn.keys[-1], turn.stream, now, turn.ended_s)))
        ready.sort(key=lambda pair: -pair[1])
        return ready

    def _scarce(self) -> tuple[int, int, int]:
        """While this stays the same, only time makes room."""
        return self._disk.pool.num_free, self._deletions.num_slots, self._in_flight_blocks

    def _wake(self, at_s: float) -> None:
        self.wake_at = at_s if self.wake_at is None else min(self.wake_at, at_s)

    def _next(self, turn: Turn, worth: float, now: float) -> Move | None:
        """The next batch of a turn, None when nothing of it can be written now."""
        first = self._disk.match(turn.keys)
        if first < turn.num_durable:
            self._give_up(turn, first, "evicted")  # to write it again would evict the others in turn, and so on
        turn.num_durable = first
        if first == len(turn.keys):
            self._turns.pop(turn.name, None)
            return None
        allowed = self._allowed_blocks(len(turn.keys) - first, now)
        chosen = self._choose(turn, first, allowed) if allowed else []
        if chosen and (room := self._room(turn, chosen, worth, now)):
            return self._write(turn, chosen[:room])
        if chosen and chosen[0] < len(turn.keys):
            # What is worth less than this changes with time alone.
            turn.no_room_until_s, turn.scarce = now + RETRY_S, self._scarce()
            self._wake(turn.no_room_until_s)
        if first == len(turn.keys):
            self._turns.pop(turn.name, None)  # the rest has just been given up
        return None

    def _allowed_blocks(self, left: int, now: float) -> int:
        """By the budget and by what is in flight. 0: later."""
        count = min(self._batch_blocks, self._most_in_flight_blocks - self._in_flight_blocks)
        least = min(left, max(1, self._batch_blocks // _WORTHWHILE)) * self._block_bytes
        affordable = self._budget.left_bytes(now)
        if count > 0 and affordable < min(least, self._budget.burst_bytes):
            self._wake(self._budget.when(least, now))
            self._num_dear += 1
            return 0
        return count if affordable >= count * self._block_bytes else int(affordable // self._block_bytes)

    def _choose(self, turn: Turn, first: int, most: int) -> list[int]:
        """Positions of blocks that are in the host tier and neither on disk nor on their way there."""
        chosen: list[int] = []
        for i in range(first, len(turn.keys)):
            key = turn.keys[i]
            if self._disk.coming(key):
                continue
            if key in self._deletions or key in self._orphans or self._host.coming(key):
                break
            if self._host.index.get(key) is None:
                self._give_up(turn, i, "lost")
                break
            chosen.append(i)
            if len(chosen) == most:
                break
        return chosen

    def _room(self, turn: Turn, chosen: list[int], worth: float, now: float) -> int:
        """For how many of them the disk has room now; it begins to make more. With none in sight they are given up."""
        parent = self._parent(turn, chosen[0])
        if not self._disk.expects(parent):
            self._give_up(turn, chosen[0], "lost")
            return 0
        short = len(chosen) - self._disk.pool.num_free - self._deletions.num_slots
        short -= self._orphans.make_room(short)
        room = self._disk.pool.num_free
        self._deletions.add(self._disk.make_room(short, now, worth=worth, under=parent))
        if room == 0 and self._deletions.num_slots == 0 and not self._in_flight_blocks:
            self._give_up(turn, chosen[0], "no_room")
        return room

    def _parent(self, turn: Turn, position: int) -> BlockKey:
        return turn.keys[position - 1] if position else self._host.parent_of(turn.keys[0])

    def _write(self, turn: Turn, chosen: list[int]) -> Move:
        keys = tuple(turn.keys[i] for i in chosen)
        parents = tuple(self._parent(turn, i) for i in chosen)
        filling = [self._disk.fill(key, parent, turn.stream) for key, parent in zip(keys, parents, strict=True)]
        write = UnderWay("write", keys, filling, cause=turn.name)
        self._holds.hold(write)
        transfer_id = self._transfers.begin_move(write)
        self._in_flight_blocks += len(keys)
        self._budget.spend(len(keys) * self._block_bytes)
        slots, generations = self._host.slots(keys)
        return Move(transfer_id, "write", 0, keys, slots, generations, parents, turn.stream)

    # -- what became of it -----------------------------------------------------------------------------------------

    def done(self, under_way: UnderWay, failed: list[int], reason: str, now: float) -> None:
        self._in_flight_blocks -= len(under_way.keys)
        good, bad = split(under_way, failed)
        turn = self._turns.get(under_way.cause)
        # Records that nothing leads to: they would only take room, and come back after a restart.
        lost = self._disk.fail(bad)
        arrived, without_parent = self._disk.landed(good, now)
        lost += without_parent
        self._disk.stored_blocks += len(arrived)
        self._orphans.arrived(arrived)
        self._disk.failed["lost"] += len(lost)
        if bad:
            lost += self._failed(turn, bad, reason, now)
        elif good:
            self._pause_s = RETRY_S
        self._deletions.add(lost)
        self._holds.let_go(under_way)
        if turn is not None and self._disk.match(turn.keys) == len(turn.keys):
            self._turns.pop(turn.name, None)

    def _failed(self, turn: Turn | None, bad: list[Filling], reason: str, now: float) -> list[BlockKey]:
        """Returns keys that are to be deleted. A failure of the disk keeps the turn waiting until it works again; else
        the turn ends where it cannot go on."""
        first = bad[0].key
        if reason == "gone":
            self._begin_again(now)
            return []
        if reason == "full" and turn is not None and not turn.retried:
            turn.retried, turn.not_before_s = True, now + RETRY_S
            worth = self._host.value(turn.keys[-1], turn.stream, now, turn.ended_s)
            return self._disk.make_room(len(bad), now, worth=worth, under=bad[0].parent)
        self._disk.failed[reason] += len(bad)
        if reason == "io":
            self._pause(now)
        elif turn is not None and first in turn.keys:
            self._cut(turn, turn.keys.index(first))
        if reason in ("generation", "checksum"):
            self._host.forget(first)
        # What is late may turn up yet.
        return [filling.key for filling in bad] if reason == "late" else []

    def _begin_again(self, now: float) -> None:
        """All that was on the disk is gone: turns that wait are written from their start."""
        self._disk.forget_all("gone")
        self._orphans.clear()
        self.chain_broke()
        self._paused_until = now + RETRY_S

    def _pause(self, now: float) -> None:
        """What else was under way when the disk failed makes it no longer."""
        if now >= self._paused_until:
            self._paused_until = now + self._pause_s
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _give_up(self, turn: Turn, position: int, reason: str) -> None:
        self._disk.failed[reason] += sum(not self._disk.coming(key) for key in turn.keys[position:])
        self._cut(turn, position)

    def _cut(self, turn: Turn, position: int) -> None:
        turn.keys = turn.keys[:position]
        if not turn.keys:
            self._turns.pop(turn.name, None)

    def check(self) -> None:
        writes = [under_way for under_way in self._transfers.all() if under_way.kind == "write"]
        assert self._in_flight_blocks == sum(len(write.keys) for write in writes), "blocks in flight differ"
        assert self._in_flight_blocks <= self._most_in_flight_blocks
        self._holds.check()
        assert len(writes) == len(self._holds)
        for name, turn in self._turns.items():
            assert turn.name == name and turn.keys
