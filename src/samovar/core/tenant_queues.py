"""The order in which prefills get the rest of a step: tenants in deficit round robin, inside a tenant by priority.

Both waiting requests and admitted ones that are still prefilling stand here. A tenant's deficit is what it may still
take in its turn; a turn adds one quantum. With one tenant this is plain priority and arrival order.
Source: M. Shreedhar and G. Varghese, "Efficient fair queuing using deficit round robin", SIGCOMM 1995.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence

from samovar.core.state import RequestState

Take = Callable[[RequestState, int], int]
"""(request, most tokens) -> tokens taken; 0 when it cannot run now."""
Later = Callable[[RequestState], bool]
"""Whether a request lets those of its priority go first."""


def _order(state: RequestState) -> tuple[int, bool, int]:
    return state.order


class TenantQueues:
    __slots__ = ("_deficits", "_queues", "_turn", "quantum")

    def __init__(self, quantum: int) -> None:
        self.quantum = quantum
        self._queues: dict[str, list[RequestState]] = {}
        self._deficits: dict[str, int] = {}
        self._turn: str | None = None
        """The tenant whose turn goes on: it was cut short by the end of a step's budget."""

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def __iter__(self) -> Iterator[RequestState]:
        for queue in self._queues.values():
            yield from queue

    def of(self, tenant: str) -> Sequence[RequestState]:
        """One tenant's requests in their order."""
        return self._queues.get(tenant, ())

    def add(self, state: RequestState) -> None:
        tenant = state.request.tenant
        if tenant not in self._queues:
            self._queues[tenant] = []
            self._deficits[tenant] = 0
        insort(self._queues[tenant], state, key=_order)

    def remove(self, state: RequestState) -> None:
        """Must be called before anything that `order` is made of changes."""
        tenant = state.request.tenant
        queue = self._queues[tenant]
        at = bisect_left(queue, state.order, key=_order)
        assert queue[at] is state
        del queue[at]
        if not queue:
            if self._turn == tenant:
                names = list(self._queues)
                self._turn = names[(names.index(tenant) + 1) % len(names)] if len(names) > 1 else None
            del self._queues[tenant], self._deficits[tenant]

    def serve(self, budget: int, take: Take, later: Later | None = None) -> int:
        """Hand out up to `budget` tokens; returns what is left. `take` is called at most once per request, with all
        that is left, so nothing is left while somebody could use it; who takes more than its deficit owes the rest.
        `later`: those of a tenant that stand behind their equals this time.

        The next call begins where this one ended, whatever ran out: tokens, seats or room.
        """
        names = list(self._queues)
        start = names.index(self._turn) if self._turn in self._queues else 0
        names = names[start:] + names[:start]
        resumed = self._turn is not None and self._deficits.get(self._turn, 0) > 0
        seen: set[int] = set()
        hungry = True
        while hungry and budget > 0:
            hungry = False
            for at, name in enumerate(names):
                if name not in self._queues:
                    continue
                if not resumed:
                    self._deficits[name] = min(self._deficits[name] + self.quantum, self.quantum)
                resumed = False
                before = budget
                budget, starved = self._visit(name, budget, take, later, seen)
                hungry = hungry or starved
                if budget < before:
                    goes_on = budget == 0 and self._deficits.get(name, 0) > 0
                    self._turn = self._first_present(names[at + (not goes_on) :] + names[: at + (not goes_on)])
                if budget == 0:
                    break
        return budget

    def _first_present(self, names: list[str]) -> str | None:
        return next((name for name in names if name in self._queues), None)

    def _visit(self, name: str, budget: int, take: Take, later: Later | None, seen: set[int]) -> tuple[int, bool]:
        """One tenant's turn: (budget left, it could have used more than its deficit)."""
        queue = list(self._queues[name])
        if later is not None:
            queue.sort(key=lambda state: (state.request.priority, later(state)))
        for state in queue:
            if budget == 0:
                break
            if state.id in seen:
                continue
            if self._deficits[name] <= 0:
                return budget, True
            seen.add(state.id)
            taken = take(state, budget)
            budget -= taken
            if name in self._deficits:
                self._deficits[name] -= taken
        return budget, False

    def check(self) -> None:
        for tenant, queue in self._queues.items():
            assert queue, "an empty queue was kept"
            assert all(s.request.tenant == tenant for s in queue)
            assert [s.order for s in queue] == sorted(s.order for s in queue), "queue out of order"
            assert self._deficits[tenant] <= self.quantum
        assert self._queues.keys() == self._deficits.keys()
        assert self._turn is None or self._turn in self._queues
