"""One visit of a lane to a session tree: which calls are done, which run, and when the next ones are due."""

from __future__ import annotations

from samovar.workload.replay_script import Call, Script


class Visit:
    """`timers` holds every call whose conditions are met, with the time it is due; the others wait for something that
    is not over. Times are the driver's seconds; recorded ones are stretched by `time_scale`."""

    def __init__(self, script: Script, number: int, repeat: int, time_scale: float) -> None:
        self.script = script
        self.number = number
        self.repeat = repeat
        self.timers: dict[int, float] = {}
        self.running: set[int] = set()
        self.done: set[int] = set()
        self._time_scale = time_scale
        self._starts: dict[int, float] = {}
        self._ends: dict[int, float] = {}
        self._resumed: tuple[float, float] | None = None
        """A moment of this run, and the recorded one that it stands for."""
        self._abandoned = False
        self._dependents: list[list[int]] = [[] for _ in script.calls]
        for call in script.calls:
            for other in _conditions(call):
                self._dependents[other].append(call.index)

    @property
    def finished(self) -> bool:
        return not self.timers and not self.running

    @property
    def next_due(self) -> float | None:
        return min(self.timers.values(), default=None)

    def begin(self, now: float) -> None:
        """From the first call on."""
        for call in self.script.calls:
            if not _conditions(call):
                self._set_timer(call, now)

    def skip_to(self, recorded_s: float) -> list[Call]:
        """What began before `recorded_s` counts as done. Returns, per stream that goes on, its last call before: the
        one that makes the cache warm."""
        last: dict[int, Call] = {}
        goes_on: set[int] = set()
        for call in self.script.calls:
            if call.start_s < recorded_s:
                self.done.add(call.index)
                last[call.stream] = call
            else:
                goes_on.add(call.stream)
        return [call for stream, call in sorted(last.items()) if stream in goes_on]

    def resume(self, now: float, recorded_s: float) -> None:
        """Sets the timers anew, at the recorded spacing from the moment `recorded_s` of the session, which is now."""
        self.timers.clear()
        self._starts.clear()
        self._ends.clear()
        self._resumed = (now, recorded_s)
        for call in self.ready():
            self._set_timer(call, now)

    def ready(self) -> list[Call]:
        """Calls whose conditions are all met, in recorded order, timers or no timers."""
        if self._abandoned:
            return []
        return [
            call
            for call in self.script.calls
            if call.index not in self.done and call.index not in self.running and self._may_start(call)
        ]

    def start(self, index: int, now: float) -> None:
        self.timers.pop(index, None)
        self.running.add(index)
        self._starts[index] = now
        self._wake(index, now)

    def complete(self, index: int, now: float) -> None:
        self.running.remove(index)
        self.done.add(index)
        self._ends[index] = now
        self._wake(index, now)

    def abandon(self) -> None:
        """Nothing new starts; what runs is waited for."""
        self._abandoned = True
        self.timers.clear()

    def delay(self, seconds: float) -> None:
        """Moves all timers by `seconds`, which is negative where idle time is cut out; so too what later ones count
        from."""
        for times in (self.timers, self._starts, self._ends):
            for index in times:
                times[index] += seconds
        if self._resumed is not None:
            self._resumed = (self._resumed[0] + seconds, self._resumed[1])

    def check(self) -> None:
        """Recomputes the invariants."""
        assert not self.done & self.running and not self.timers.keys() & (self.done | self.running)
        for index in self.timers:
            assert self._may_start(self.script.calls[index])

    def _wake(self, index: int, now: float) -> None:
        if self._abandoned:
            return
        for other in self._dependents[index]:
            waiting = other not in self.done and other not in self.running and other not in self.timers
            if waiting and self._may_start(self.script.calls[other]):
                self._set_timer(self.script.calls[other], now)

    def _may_start(self, call: Call) -> bool:
        if call.anchor is not None and call.anchor not in self.done:
            return call.anchored_at == "start" and call.anchor in self.running and self._passed(call)
        return self._passed(call)

    def _passed(self, call: Call) -> bool:
        return all(barrier in self.done for barrier in call.barriers)

    def _set_timer(self, call: Call, now: float) -> None:
        since = self._anchor_time(call)
        if since is not None:
            due = since + call.delay_s * self._time_scale
        elif self._resumed is not None:  # its anchor was before the part that is replayed
            due = self._resumed[0] + (call.start_s - self._resumed[1]) * self._time_scale
        else:
            due = now + call.delay_s * self._time_scale
        self.timers[call.index] = max(now, due)

    def _anchor_time(self, call: Call) -> float | None:
        if call.anchor is None:
            return None
        return (self._ends if call.anchored_at == "end" else self._starts).get(call.anchor)


def _conditions(call: Call) -> set[int]:
    return {*call.barriers, *(() if call.anchor is None else (call.anchor,))}
