"""Which tools begin sub-agents: those during whose calls other prompts with the same beginning come.

A conversation that waits for such a tool comes back when its sub-agents are done, however many turns they take. One
that waits for another tool, and does not come back while a prompt like its own goes on, has been compacted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

MAX_TOOLS = 1000
_MOST_CALLS = 64
"""Counts are halved then: habits change."""


class Spawners:
    """Bounded: tools called longest ago are forgotten. A tool of which nothing is known may be one."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Calls that ended, and those of them with a new prompt meanwhile."""

    def returned(self, tools: Sequence[str], *, forked: bool) -> None:
        """A conversation that had called these goes on. `forked`: something began like it meanwhile."""
        for tool in dict.fromkeys(tools):
            calls, forks = self._counts.get(tool, (0.0, 0.0))
            if calls >= _MOST_CALLS:
                calls, forks = calls / 2, forks / 2
            self._counts[tool] = (calls + 1.0, forks + forked)
            self._counts.move_to_end(tool)
        while len(self._counts) > MAX_TOOLS:
            self._counts.popitem(last=False)

    def among(self, tools: Sequence[str]) -> bool:
        """Whether one of these mostly is one, or may be."""
        for tool in tools:
            calls, forks = self._counts.get(tool, (0.0, 0.0))
            if 2 * forks >= calls:
                return True
        return False
