"""Threads that take work from a few queues, the first one that has some: a lane for each thing that can be slow.

A thread never ends before the lane is stopped, whatever its work raises. It has memory of its own, the only place where
reads of unknown duration may put bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
import threading
import time

import numpy as np
from numpy.typing import NDArray

from samovar.kernels.cpu.pages import zeroed

Bytes = NDArray[np.uint8]


class Bounce:
    """Private memory of one thread, on a page boundary; grows to the most that was asked for."""

    def __init__(self) -> None:
        self._memory: Bytes = np.empty(0, dtype=np.uint8)

    def take(self, num_bytes: int) -> Bytes:
        """What was taken before is given up."""
        if self._memory.size < num_bytes:
            self._memory = zeroed(num_bytes)
        return self._memory[:num_bytes]


Work = Callable[[Bounce], None]


class Lane:
    def __init__(self, name: str, num_threads: int, num_queues: int, on_error: Callable[[Exception], None]) -> None:
        """`on_error`: gets what a piece of work raised; it must not raise itself."""
        self._queues: tuple[deque[Iterator[Work]], ...] = tuple(deque() for _ in range(num_queues))
        self._on_error = on_error
        self._changed = threading.Condition()
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._run, name=f"kv-{name}-{n}", daemon=True) for n in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, queue: int, work: Iterator[Work]) -> None:
        """Of two queues the lower number goes first; inside one, first in first out. The iterator is drawn from as
        threads are free, and must do next to nothing: whoever looks for work waits for it."""
        with self._changed:
            if not self._stopped:
                self._queues[queue].append(work)
                self._changed.notify_all()

    def stop(self) -> None:
        """What waits is dropped, what runs is not waited for."""
        with self._changed:
            self._stopped = True
            for queue in self._queues:
                queue.clear()
            self._changed.notify_all()

    def join(self, timeout_s: float) -> bool:
        """After `stop`. False when a thread is still at work; it ends with that."""
        until = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        bounce = Bounce()
        while (work := self._next()) is not None:
            try:
                work(bounce)
            except Exception as error:
                self._on_error(error)

    def _next(self) -> Work | None:
        with self._changed:
            while not self._stopped:
                work = self._first()
                if work is not None:
                    return work
                self._changed.wait()
            return None

    def _first(self) -> Work | None:
        for queue in self._queues:
            while queue:
                work = next(queue[0], None)
                if work is not None:
                    return work
                queue.popleft()
        return None
