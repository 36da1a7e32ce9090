"""How soon streams come back, by what is known of how their last turn ended: learned from what they really do.

A silence is counted in the bins of EDGES_S: per class and bin, the seconds that streams were silent there, and how many
came back. The rate of a bin is Gamma distributed around the class's prior, so its mean is

    (returns + turns * seconds per turn * prior rate) / (seconds + turns * seconds per turn)

where `turns` says how many turns the prior counts for. Whoever is still silent has been counted too: a class whose
streams never come back shows that by seconds without returns.

Classes: what the stream is doing (`Kind`), below tool calls one per tool's name, and over all of them the stream's
*pace*: whether its own silences so far were shorter or longer than its classes' are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import expm1

from samovar.policy.pace import PACES, shifted
from samovar.policy.priors import (
    AFTER_ANSWER,
    AFTER_ANY,
    AFTER_ITS_ANSWER,
    AFTER_TOOL_CALL,
    ANSWERS,
    OPEN_ENDS,
    SINCE_ANSWER_BEGAN,
    SINCE_TOOL_CALL_BEGAN,
    TURNS,
    WITH_SUBAGENTS,
    rates_of,
)
from samovar.policy.running import Running
from samovar.policy.silence import EDGES_S, Curve

KIND_TURNS = 150.0
"""Turns that what is published counts for: it comes from tens of thousands."""
TOOL_TURNS = 5.0
"""Turns that all tools together count for in judging one."""
LEVEL_TURNS = 200.0
"""Turns that what is known of all streams, moved to a pace, counts for in judging those of that pace."""
ENDS_TURNS = 10.0
"""Turns that the ends of all streams' turns count for in judging how one stream's end."""
MOST_RETURNS = 2000.0
"""A class that has seen more counts half of it from then on: habits change."""
MAX_TOOLS = 256
FRESH_SHARE = 0.02
"""Rates are computed again when so much has been added to what they come from."""
LEAST_SECONDS = 1e-6
"""So that bins that nobody is expected to reach have a rate too: the prior's."""
LONGEST_S = EDGES_S[-1]
"""Nothing is counted after that much silence."""


class Kind(Enum):
    """What is known of a stream. All but the first two count from the end of its turn (JOINED: of its last
    sub-agent)."""

    RUNNING = "running"
    """Its turn has not ended: what is counted is how long turns take."""
    ROUND = "round"
    """From the start of a turn to that of the next one."""
    TOOL_CALLS = "tool_calls"
    STOP = "stop"
    OTHER = "other"
    """Cut short: length, abort, error."""
    OPEN = ""
    """Not known how it ended."""
    WAITING = "waiting"
    """Its sub-agents are at work."""
    JOINED = "joined"
    """The last of them has ended."""
    DONE = "done"
    """A sub-agent that has answered."""


_PRIORS = {
    Kind.RUNNING: rates_of((1.0, TURNS)),
    Kind.ROUND: rates_of((1 - ANSWERS, SINCE_TOOL_CALL_BEGAN), (ANSWERS, SINCE_ANSWER_BEGAN)),
    Kind.TOOL_CALLS: rates_of((1.0, AFTER_TOOL_CALL)),
    Kind.STOP: rates_of((1.0, AFTER_ANSWER)),
    Kind.OTHER: rates_of((1.0, AFTER_ANY)),
    Kind.OPEN: rates_of((1.0, AFTER_ANY)),
    Kind.WAITING: rates_of((1.0, WITH_SUBAGENTS)),
    Kind.JOINED: rates_of((1.0, AFTER_TOOL_CALL)),
    Kind.DONE: rates_of((1.0, AFTER_ITS_ANSWER)),
}
_ENDS = {Kind.TOOL_CALLS: 1 - ANSWERS - OPEN_ENDS, Kind.STOP: ANSWERS, Kind.OPEN: OPEN_ENDS}


class Hazard:
    """Counts of one class. What is counted here is counted in `parent` too."""

    __slots__ = (
        "_changes", "_deviate", "_parent", "_prior", "_rates", "_returns", "_seconds", "_turns", "num_returns",
        "version",
    )  # fmt: skip

    def __init__(
        self, prior: Sequence[float], turns: float, parent: Hazard | None = None, deviate: float = 0.0
    ) -> None:
        """`prior`: rates by bin; where there is a `parent`, its rates are the prior instead, moved by `deviate`."""
        self._prior = prior
        self._turns = turns
        self._parent = parent
        self._deviate = deviate
        self._returns = [0.0] * len(EDGES_S)
        self._seconds = [0.0] * len(EDGES_S)
        self.num_returns = 0.0
        self._changes = 0.0
        self._rates: list[float] = []
        self.version = 0
        """Changes with the rates: not with every count, but before they are off by more than some percent."""

    def _changed(self) -> None:
        self._changes += 1.0
        if self._changes > FRESH_SHARE * (self._turns + self.num_returns):
            self._changes = 0.0
            self._rates = []
            self.version += 1

    def silent(self, bin_: int, seconds: float) -> None:
        self._seconds[bin_] += seconds
        if self._parent is not None:
            self._parent.silent(bin_, seconds)

    def came_back(self, bin_: int) -> None:
        self._returns[bin_] += 1.0
        self.num_returns += 1.0
        if self.num_returns > MOST_RETURNS:
            self._returns = [count / 2 for count in self._returns]
            self._seconds = [seconds / 2 for seconds in self._seconds]
            self.num_returns /= 2
        if self._parent is not None:
            self._parent.came_back(bin_)

    def counted(self) -> None:
        """A silence, or a part of one, has been counted here."""
        self._changed()
        if self._parent is not None:
            self._parent.counted()

    def rates(self) -> list[float]:
        """Per second, by bin. Not to be changed."""
        if not self._rates:
            self._rates = self._mean()
        return self._rates

    def _mean(self) -> list[float]:
        prior = self._prior if self._parent is None else shifted(self._parent.rates(), self._deviate)
        found: list[float] = []
        lasting = 1.0
        for bin_, rate in enumerate(prior):
            width = EDGES_S[bin_ + 1] - EDGES_S[bin_] if bin_ + 1 < len(EDGES_S) else LONGEST_S
            ends = -expm1(-rate * width)
            assumed_s = max(self._turns * lasting * ends / rate, LEAST_SECONDS)
            found.append((self._returns[bin_] + assumed_s * rate) / (self._seconds[bin_] + assumed_s))
            lasting *= 1.0 - ends
        return found


@dataclass(frozen=True, slots=True)
class Usual:
    """What is expected of a class without hints: its hazard whatever the pace, by bin, and the curve at its own."""

    version: int
    base: Sequence[float]
    curve: Curve


class Signs:
    """The classes that a silence counts for."""

    __slots__ = ("_all", "_usual", "hazard", "kind", "tool")

    def __init__(self, kind: Kind, tool: str, hazard: Hazard, deviate: float) -> None:
        """`hazard`: of the kind or tool at every pace; `deviate`: of this pace."""
        self.kind = kind
        self.tool = tool
        self.hazard = Hazard((), LEVEL_TURNS, hazard, deviate)
        self._all = hazard
        self._usual: Usual | None = None

    @property
    def at_every_pace(self) -> Hazard:
        return self._all

    def usual(self) -> Usual:
        """Made anew when the hazard's rates have changed."""
        if self._usual is None or self._usual.version != self.hazard.version:
            self._usual = Usual(self.hazard.version, self._all.rates(), Curve(EDGES_S, self.hazard.rates()))
        return self._usual


class Hazards:
    """All classes. Bounded: the tools called longest ago are forgotten."""

    def __init__(self, max_tools: int = MAX_TOOLS) -> None:
        self._hazards = {kind: Hazard(prior, KIND_TURNS) for kind, prior in _PRIORS.items()}
        self._kinds = {kind: self._all_paces(kind, "", hazard) for kind, hazard in self._hazards.items()}
        self._tools: OrderedDict[str, tuple[Signs, ...]] = OrderedDict()
        self._max_tools = max_tools
        self._ends = [{kind: KIND_TURNS * share for kind, share in _ENDS.items()} for _ in range(2)]

    def _all_paces(self, kind: Kind, tool: str, hazard: Hazard) -> tuple[Signs, ...]:
        return tuple(Signs(kind, tool, hazard, deviate) for deviate in PACES)

    def signs(self, kind: Kind, tool: str, level: int) -> Signs:
        """Of a kind or, after tool calls, of a tool ("": none known), at a pace."""
        if kind is not Kind.TOOL_CALLS or not tool:
            return self._kinds[kind][level]
        found = self._tools.get(tool)
        if found is None:
            hazard = Hazard((), TOOL_TURNS, self._hazards[Kind.TOOL_CALLS])
            found = self._tools[tool] = self._all_paces(kind, tool, hazard)
            if len(self._tools) > self._max_tools:
                self._tools.popitem(last=False)
        self._tools.move_to_end(tool)
        return found[level]

    def of(self, kind: Kind, tool: str = "") -> Hazard:
        """At every pace."""
        return self.signs(kind, tool, 0).at_every_pace

    # -- turns -----------------------------------------------------------------------------------------------------

    def ended(self, kind: Kind, *, sub_agent: bool, times: float = 1.0) -> None:
        """A turn ended that way; `times` -1 takes it back."""
        ends = self._ends[sub_agent]
        ends[kind] = max(0.0, ends.get(kind, 0.0) + times)
        total = sum(ends.values())
        if total > MOST_RETURNS:
            self._ends[sub_agent] = {kind: count / 2 for kind, count in ends.items()}

    def running(self, own: Mapping[Kind, float], *, sub_agent: bool, tool_level: int, answer_level: int) -> Running:
        """A stream in a turn, by how long turns take and how they end; `own`: how its own turns so far ended."""
        ends = self._ends[sub_agent]
        each = ENDS_TURNS / sum(ends.values())
        counts = {kind: each * ends.get(kind, 0.0) + own.get(kind, 0.0) for kind in {**ends, **own}}
        total = sum(counts.values())
        silences = [
            (count / total, self._after(kind, sub_agent, tool_level, answer_level)) for kind, count in counts.items()
        ]
        return Running(self.of(Kind.RUNNING).rates(), silences)

    def _after(self, kind: Kind, sub_agent: bool, tool_level: int, answer_level: int) -> Curve:
        if kind is Kind.STOP:
            return self.signs(Kind.DONE if sub_agent else kind, "", answer_level).usual().curve
        return self.signs(kind, "", tool_level).usual().curve
