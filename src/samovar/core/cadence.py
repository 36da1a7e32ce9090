"""When prefill may run: in every Nth step only, so that decodes of a whole group run at their own pace between.

Semantics follow vLLM's `--prefill-schedule-interval` with its gaps closed: it holds for a lone engine too, it never
defers when nothing decodes, and a queue that a releasing step could not drain switches it off until one does.
"""

from __future__ import annotations

from samovar.core.plan import Gate


def group_gate(step_counter: int, interval: int) -> Gate:
    """The gate of a DP group: one counter for all ranks, 0 when a wave begins, so that an idle group admits at once."""
    return Gate(step_counter, step_counter % interval == 0)


class PrefillCadence:
    """Counts executed steps since the last one with prefill (a lone engine) or obeys the group's gate."""

    __slots__ = ("_guarded", "_interval", "_saturated", "_since_prefill")

    def __init__(self, interval: int, *, guarded: bool = True) -> None:
        """`guarded`: a queue that does not drain switches it off."""
        self._interval = interval
        self._guarded = guarded
        self._since_prefill = interval  # the first prefill never waits
        self._saturated = False

    def defers(self, gate: Gate | None, any_decode: bool) -> bool:
        """Whether this step leaves prefill out."""
        if self._saturated or not any_decode:
            return False
        if gate is not None:
            return not gate.prefill_allowed
        return self._interval > 1 and self._since_prefill + 1 < self._interval

    def deferring(self, closed_gates: int | None) -> int:
        """How many next steps in a row leave prefill out if all of them decode. `closed_gates`: as many gates are
        closed; None when the engine is alone."""
        if self._saturated:
            return 0
        return max(0, self._interval - 1 - self._since_prefill) if closed_gates is None else closed_gates

    def decoded(self, steps: int) -> None:
        """So many steps were planned that had no prefill: either nobody waited, whatever the gates (a saturated queue's
        first such step is not deferred, and finds it drained), or all were deferred."""
        self._saturated = False
        self._since_prefill += steps

    def planned(self, *, deferred: bool, had_prefill: bool, drained: bool) -> None:
        """A step was planned. `drained`: no request was left waiting for lack of room or budget."""
        if not deferred:
            self._saturated = self._guarded and not drained
        self._since_prefill = 0 if had_prefill else self._since_prefill + 1
