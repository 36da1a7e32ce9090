"""What is assumed of coding agents before any has been seen.

From published statistics of 739 recorded Claude Code sessions (kv-cache-tester): medians and P90s of the client's time
between the end of a turn and the next one, after a tool's result 9 s and 74 s, after a user's words 127 s and 1540 s,
over all turns 9.7 s and 120 s; between the starts of two turns 17 s and 90 s when the first ended in a tool call, 221 s
and 2992 s when it ended in an answer; of streams that end so, 0.7% and 14.9% never come back; sub-agents run for 120 s,
P90 274 s; turns take 6.1 s, P90 18.4 s. Each becomes a log-normal distribution with those two quantiles and a share
that never ends; where more quantiles are published, it is a log-normal one between each two of them.

Also published, over all turns: of the prompt tokens that a cache without limit finds, 46.4% are used again within 10 s,
77.3% within 30, 84.8% within 60, 90.3% within 120, 95.3% within 300, 97.2% within 600 and 99.7% within 3600 s, and the
P99 of the time between turns is 2182 s. What is left of these shares after taking away the 6% of turns that end in an
answer is how long tools take.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import log
from statistics import NormalDist

from samovar.policy.silence import EDGES_S, LEAST_RATE

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Gaps:
    """Quantiles of the silences that end."""

    median_s: float
    p90_s: float
    never: float
    """Share of silences that do not end."""
    further: tuple[tuple[float, float], ...] = ()
    """More of them, in the order of time and later than the median: seconds, and the share that lasts longer."""

    def silent(self, seconds: float) -> float:
        """The share that lasts longer."""
        if seconds <= 0:
            return 1.0
        points = sorted(((self.median_s, 0.5), (self.p90_s, 0.1), *self.further))
        at = min(max(bisect_right(points, (seconds, 1.0)) - 1, 0), len(points) - 2)
        (start_s, before), (stop_s, after) = points[at : at + 2]
        first, last = (_NORMAL.inv_cdf(1.0 - share) for share in (before, after))
        deviate = first + (last - first) * log(seconds / start_s) / log(stop_s / start_s)
        return self.never + (1.0 - self.never) * _NORMAL.cdf(-deviate)


AFTER_TOOL_CALL = Gaps(
    9.0, 74.0, 0.007, ((30.0, 0.192), (60.0, 0.12), (120.0, 0.071), (300.0, 0.029), (600.0, 0.016), (3600.0, 0.003))
)
AFTER_ANSWER = Gaps(127.0, 1540.0, 0.149)
AFTER_ANY = Gaps(9.7, 120.0, 0.03, ((30.0, 0.227), (60.0, 0.152), (300.0, 0.05), (600.0, 0.03), (2182.0, 0.01)))
"""Where it is not known how the turn ended."""
SINCE_TOOL_CALL_BEGAN = Gaps(17.0, 90.0, 0.007)
SINCE_ANSWER_BEGAN = Gaps(221.0, 2992.0, 0.149)
WITH_SUBAGENTS = Gaps(120.0, 274.0, 0.01)
AFTER_ITS_ANSWER = Gaps(60.0, 600.0, 0.95)
"""Of a sub-agent: its parent has what it wanted."""
TURNS = Gaps(6.1, 18.4, 0.0)
"""How long turns take."""
ANSWERS, OPEN_ENDS = 0.06, 0.09
"""Shares of turns that end in an answer to a user, and of those of which it is not known how they ended."""


def rates_of(*mixture: tuple[float, Gaps]) -> tuple[float, ...]:
    """The hazard of a mixture (weight, gaps) in the bins of EDGES_S, per second."""
    lasting = [sum(weight * gaps.silent(edge) for weight, gaps in mixture) for edge in EDGES_S]
    rates = [
        log(lasting[at] / lasting[at + 1]) / (EDGES_S[at + 1] - EDGES_S[at]) if lasting[at + 1] > 0.0 else 1.0
        for at in range(len(EDGES_S) - 1)
    ]
    return tuple(max(rate, LEAST_RATE) for rate in (*rates, rates[-1] / 10))
