"""The log's own thread: writes tombstones that no commit took along, and compacts."""

from __future__ import annotations

from collections.abc import Callable
import logging
import threading

from samovar.pool.disk.stats import Counters

log = logging.getLogger(__name__)

GATHER_S = 0.05
"""After something was deleted: the next commit may take the tombstones along."""


class Background:
    """`tend` does one bounded piece of work and says whether there is more. It is called after every `wake`."""

    def __init__(self, tend: Callable[[], bool], counters: Counters) -> None:
        self._tend = tend
        self._counters = counters
        self._wanted = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samovar-disk", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._wanted.set()

    def stop(self) -> None:
        """Returns when the piece of work under way has ended."""
        self._ending.set()
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._ending.wait(GATHER_S)
            self._wanted.clear()
            # Only now: the wake-up of a stop that came before is gone with the others.
            if self._ending.is_set():
                return
            try:
                while self._tend() and not self._ending.is_set():
                    pass
            except Exception:
                # The thread must outlive it: without compaction the disk would only fill up.
                self._counters.failed("background:error")
                log.exception("the disk's background work failed")
