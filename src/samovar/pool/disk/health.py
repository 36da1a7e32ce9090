"""Says in the log, once, when writing begins to fail, and once when it works again.

One caller at a time: whoever holds the write lock.
"""

from __future__ import annotations

from collections.abc import Callable
import logging
import time

log = logging.getLogger(__name__)

QUIET_S = 10.0
"""Without a failure, until it counts as working again: a disk that is full takes small pieces now and then."""


class Health:
    def __init__(self, folder: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._began_s: float | None = None
        self._failed_s = 0.0

    def failed(self, why: str) -> None:
        self._failed_s = self._clock()
        if self._began_s is None:
            self._began_s = self._failed_s
            log.warning("the disk tier cannot write to %s: %s; what it has no room for is not kept", self._folder, why)

    def worked(self) -> None:
        """A batch of records is durable."""
        if self._began_s is not None and (now := self._clock()) - self._failed_s >= QUIET_S:
            log.info("the disk tier writes to %s again, after %.0f s", self._folder, now - self._began_s)
            self._began_s = None
