"""Calls something when its time has come. A thread that hangs cannot report itself; this one does it in its place."""

from __future__ import annotations

from collections.abc import Callable
import heapq
from itertools import count
import threading

from samovar.kv.transfer import Transfer


class Deadlines:
    """`expire` is called from a thread of its own, for transfers that had not ended at their deadline; it must not
    raise. Times are those of `clock`, in seconds."""

    def __init__(self, expire: Callable[[Transfer], None], clock: Callable[[], float]) -> None:
        self._expire = expire
        self._clock = clock
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Transfer]] = []
        self._order = count()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="kv-deadlines", daemon=True)
        self._thread.start()

    def add(self, transfer: Transfer, deadline: float) -> None:
        with self._changed:
            heapq.heappush(self._heap, (deadline, next(self._order), transfer))
            if self._heap[0][2] is transfer:
                self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (transfer := self._next()) is not None:
            self._expire(transfer)

    def _next(self) -> Transfer | None:
        with self._changed:
            while not self._closed:
                while self._heap and self._heap[0][2].ended:
                    heapq.heappop(self._heap)
                left = self._heap[0][0] - self._clock() if self._heap else None
                if left is not None and left <= 0:
                    return heapq.heappop(self._heap)[2]
                self._changed.wait(left)
            return None
