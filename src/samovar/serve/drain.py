"""Shutting down without cutting anyone off: no new generations, open ones finish, the rest is told why it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from samovar.base.errors import Draining, SamovarError

Fail = Callable[[SamovarError], None]


class Drain:
    """Knows every open generation request. Used on the event loop only."""

    def __init__(self) -> None:
        self.draining = False
        self._open: dict[int, Fail] = {}
        self._next = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(self) -> None:
        self.draining = True

    def admit(self, retry_after_s: float) -> None:
        """Raises Draining once shutdown began."""
        if self.draining:
            raise Draining("The server is shutting down and takes no new requests.", retry_after_s=retry_after_s)

    @contextmanager
    def request(self, fail: Fail) -> Iterator[None]:
        """Counts a request as open; `fail` is called when it has to end early."""
        key, self._next = self._next, self._next + 1
        self._open[key] = fail
        self._idle.clear()
        try:
            yield
        finally:
            del self._open[key]
            if not self._open:
                self._idle.set()

    @property
    def num_open(self) -> int:
        return len(self._open)

    async def finished(self, timeout_s: float) -> bool:
        """Waits until nothing is open; False when the time was not enough."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def cut_off(self) -> None:
        for fail in list(self._open.values()):
            fail(Draining("The server shut down before this request was complete."))
