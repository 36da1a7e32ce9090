"""How far long work is, on stderr: a bar where somebody watches, elsewhere a line now and then, so that a log shows
that it goes on. Work that is soon over says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

EVERY_S = 5.0
"""Between two lines, at least."""


class Lines:
    """For pipes and logs; on a terminal, where a bar says it, none is printed."""

    def __init__(self, console: Console, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._every_s = every_s
        self._clock = clock
        self._last_s = clock()

    def say(self, line: str) -> None:
        """Printed unless the one before, or the beginning, was less than `every_s` ago."""
        if self._console.is_terminal or self._clock() - self._last_s < self._every_s:
            return
        self.note(line)

    def note(self, line: str) -> None:
        """Printed however soon after the one before: something has ended."""
        if not self._console.is_terminal:
            self._last_s = self._clock()
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def counted(console: Console, verb: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yields what tells how many are done. `total`: None when nobody knows."""
    columns = (TextColumn(verb), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    lines, of_all = Lines(console), "" if total is None else f" of {total:,}"
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(verb, total=total)

        def told(done: int) -> None:
            bar.update(task, completed=done)
            lines.say(f"{verb}: {done:,}{of_all}")

        yield told
