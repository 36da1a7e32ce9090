"""Who on a rank waits for a tier to bring its blocks, and for how long: looks at those alone, however many run."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from samovar.base.ids import RequestId
from samovar.sim.live import Live


class LoadWaits:
    """`loading` is always the core's: requests that wait by now."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[RequestId, Live] = {}

    def planned(self, loading: Collection[RequestId], lives: Mapping[RequestId, Live], now: float) -> None:
        """A plan was made: some wait from now on, others have been told not to wait any longer."""
        for number in loading:
            if number not in self._waiting:
                live = self._waiting[number] = lives[number]
                live.loading_since_s = now
        for live in self._over(loading, now):
            live.gave_up_load = True

    def transferred(self, loading: Collection[RequestId], now: float) -> None:
        """Loads have ended."""
        self._over(loading, now)

    def ended(self, live: Live) -> None:
        """The request is over, whether it waited or not."""
        self._waiting.pop(live.id, None)

    def _over(self, loading: Collection[RequestId], now: float) -> list[Live]:
        """Time that they waited after their first step counts as prefill or decode."""
        over = [live for number, live in self._waiting.items() if number not in loading]
        for live in over:
            del self._waiting[live.id]
            if live.first_step_s is None and live.loading_since_s is not None:
                live.load_s += now - live.loading_since_s
            live.loading_since_s = None
        return over
