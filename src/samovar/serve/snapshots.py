"""What the engine says of itself, for the pages people and their tools look at.

However many look, the engine is asked at most every `MAX_AGE_S`, and never again before it has answered.
"""

from __future__ import annotations

import asyncio
import time

from samovar.base.errors import Saturated
from samovar.core.ports import Service
from samovar.serve.cache_figures import Snapshot
from samovar.serve.state import engine_dead

MAX_AGE_S = 0.5
ANSWER_TIMEOUT_S = 2.0


class Snapshots:
    """Used on one event loop only. Both methods raise EngineDead, and Saturated when the engine does not answer in
    time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._last: Snapshot | None = None
        self._asked: asyncio.Task[Snapshot] | None = None

    async def fresh(self) -> Snapshot:
        """Taken after the call: a scrape must not miss what its caller has just done."""
        self._refuse_when_dead()
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._ask()
        except TimeoutError:
            raise _too_busy() from None

    async def recent(self) -> Snapshot:
        """At most `MAX_AGE_S` old; callers share the asking. One that goes away takes it from nobody."""
        self._refuse_when_dead()
        if self._last is not None and time.monotonic() - self._last.at_s < MAX_AGE_S:
            return self._last
        if self._asked is None or self._asked.done():
            self._asked = asyncio.create_task(self._ask())
            self._asked.add_done_callback(_seen)
        asked = self._asked
        done, _ = await asyncio.wait({asked}, timeout=ANSWER_TIMEOUT_S)
        if not done:
            raise _too_busy()
        return asked.result()

    async def _ask(self) -> Snapshot:
        stats, report = await asyncio.gather(self._service.stats(), self._service.cache_report())
        self._last = Snapshot(stats, report, time.monotonic())
        return self._last

    def _refuse_when_dead(self) -> None:
        if self._service.dead is not None:
            raise engine_dead(self._service)


def _too_busy() -> Saturated:
    return Saturated(f"The engine did not answer within {ANSWER_TIMEOUT_S:g} s; try again.", retry_after_s=1.0)


def _seen(asked: asyncio.Task[Snapshot]) -> None:
    """A failure that nobody waits for any more is no news."""
    if not asked.cancelled():
        asked.exception()
