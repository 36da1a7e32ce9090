"""Threads that do the same thing at the same time, for benchmarks of memory and disk."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from samovar.bench.compute.timing import Run


class Team:
    """A context manager; its threads live as long as it is entered."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="bench-kv")

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def each(self, items: np.ndarray, work: Callable[[int, list[int]], None]) -> Run:
        """A run in which thread t does `work(t, its share of the items)`."""
        shares = [share.tolist() for share in np.array_split(items, self.threads)]

        def run() -> None:
            # `list` brings up what a thread raised.
            list(self._pool.map(work, range(self.threads), shares))

        return run
