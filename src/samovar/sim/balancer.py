"""Which rank a request goes to. A rank tells what it has to do between two steps, and that is known after a delay; what
was sent to it since then is known at once, but only to the server that sent it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from samovar.sim.settings import BalancerName
from samovar.workload.prompts import seed_of
from samovar.workload.replay import Launch

_WAITING_WEIGHT = 4
"""A waiting request counts as much as so many running ones, as in vLLM's balancer."""


@dataclass(slots=True)
class _RankLoad:
    """Running and waiting requests of a rank over time, as far back as the delay reaches, and what was sent to it."""

    times: deque[float] = field(default_factory=lambda: deque((float("-inf"),)))
    counts: deque[tuple[int, int]] = field(default_factory=lambda: deque(((0, 0),)))
    sent: deque[tuple[float, int]] = field(default_factory=deque)
    """When, and by which server."""
    num_trees: int = 0


class Balancer:
    """Deterministic: equal loads go to the rank that the server sent to longest ago, then by number, from one that
    differs from server to server."""

    def __init__(self, name: BalancerName, ranks: int, max_num_seqs: int, delay_s: float, servers: int = 1) -> None:
        """`servers` share the requests evenly. Each of them knows what it sent itself, and takes it that the others
        sent as much."""
        self._name = name
        self._max_num_seqs = max_num_seqs
        self._delay_s = delay_s
        self._loads = [_RankLoad() for _ in range(ranks)]
        self._turn = 0
        self._servers = servers
        self._last_sent = [[-1] * ranks for _ in range(servers)]
        self._num_sent = 0
        self._trees: dict[int, tuple[int, int]] = {}
        """Of each lane, the visit it is at and the rank of its tree."""
        self._streams: dict[tuple[int, int], int] = {}
        """Of (lane, stream), its rank."""

    def changed(self, rank: int, running: int, waiting: int, now: float) -> None:
        """A rank's load, which becomes known after the delay."""
        load = self._loads[rank]
        if load.times[-1] == now:
            load.counts[-1] = (running, waiting)
        elif load.sent or load.counts[-1] != (running, waiting):
            load.times.append(now)
            load.counts.append((running, waiting))
            self._forget_before(load, now - self._delay_s)

    def choose(self, launch: Launch, now: float) -> int:
        if len(self._loads) == 1:
            return 0
        server = seed_of("server", launch.id) % self._servers if self._servers > 1 else 0
        rank = self._choose(launch, server, now)
        self._num_sent += 1
        self._last_sent[server][rank] = self._num_sent
        self._loads[rank].sent.append((now, server))
        return rank

    def _choose(self, launch: Launch, server: int, now: float) -> int:
        if self._name == "round-robin":
            rank, self._turn = self._turn, (self._turn + 1) % len(self._loads)
            return rank
        if self._name == "hash":
            return seed_of(launch.lane, launch.visit, launch.call.stream) % len(self._loads)
        if self._name == "least-loaded":
            return self._least_loaded(server, now)
        home = self._home(launch.lane, launch.visit, server, now)
        place = (launch.lane, launch.call.stream)
        if place not in self._streams:
            full = launch.call.stream and self._is_full(home, server, now)
            self._streams[place] = self._least_loaded(server, now) if full else home
        return self._streams[place]

    def _home(self, lane: int, visit: int, server: int, now: float) -> int:
        """The rank of a lane's tree; a new tree gets one."""
        known = self._trees.get(lane)
        if known is not None and known[0] == visit:
            return known[1]
        if known is not None:
            self._loads[known[1]].num_trees -= 1
            self._streams = {place: rank for place, rank in self._streams.items() if place[0] != lane}
        ranks = range(len(self._loads))
        home = min(ranks, key=lambda r: (self._loads[r].num_trees, *self._order(r, server, now)))
        self._loads[home].num_trees += 1
        self._trees[lane] = (visit, home)
        return home

    def _least_loaded(self, server: int, now: float) -> int:
        return min(range(len(self._loads)), key=lambda rank: self._order(rank, server, now))

    def _order(self, rank: int, server: int, now: float) -> tuple[int, int, int]:
        running, waiting = self._known(rank, server, now)
        ranks = len(self._loads)
        turn = (rank - server * ranks // self._servers) % ranks
        return running + _WAITING_WEIGHT * waiting, self._last_sent[server][rank], turn

    def _is_full(self, rank: int, server: int, now: float) -> bool:
        running, waiting = self._known(rank, server, now)
        return running + waiting >= self._max_num_seqs

    def _known(self, rank: int, server: int, now: float) -> tuple[int, int]:
        """(running, waiting) as the rank told it last, `delay_s` ago or before; what was sent since counts as
        waiting."""
        load = self._loads[rank]
        self._forget_before(load, now - self._delay_s)
        running, waiting = load.counts[0]
        return running, waiting + self._servers * sum(by == server for _, by in load.sent)

    def _forget_before(self, load: _RankLoad, known_s: float) -> None:
        """What was superseded by then, and requests sent before the rank told its load."""
        while len(load.times) > 1 and load.times[1] <= known_s:
            load.times.popleft()
            load.counts.popleft()
        while load.sent and load.sent[0][0] <= load.times[0]:
            load.sent.popleft()
