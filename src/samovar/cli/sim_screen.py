"""What `samovar simulate` and `samovar plan` show: bars while they work, tables at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from samovar.sim.report_tables import Table


def show(console: Console, table: Table) -> None:
    """Words may be folded, numbers never."""
    if not table.rows:
        return
    console.print(f"\n[bold]{escape(table.title)}[/]", highlight=False)
    if table.told:
        console.print(table.told, style="dim", highlight=False, markup=False)
    shown = RichTable(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for at, column in enumerate(table.head):
        words = at < table.left or column in ("bound by", "why")
        shown.add_column(escape(column), justify="left" if words else "right", no_wrap=not words)
    for row in table.rows:
        shown.add_row(*(escape(cell) for cell in row))
    console.print(shown)


@contextmanager
def load_bars(console: Console, loads: Sequence[int]) -> Iterator[Callable[[int, float], None]]:
    """One bar per concurrency, worked on one after the other; yields what tells a share of one. Ctrl-C is passed on,
    with a line on what was finished."""
    begun: dict[int, None] = {}
    try:
        with _progress(console) as bars:
            tasks = {load: bars.add_task(f"concurrency {load}", total=1.0, start=False) for load in loads}

            def told(load: int, share: float) -> None:
                begun[load] = None
                bars.start_task(tasks[load])
                bars.update(tasks[load], completed=share)

            yield told
    except KeyboardInterrupt:
        done = ", ".join(map(str, [*begun][:-1]))
        kept = f"the folder holds results of concurrency {done}" if done else "there are no results"
        console.print(f"interrupted at concurrency {[*begun, *loads][max(len(begun) - 1, 0)]}: {kept}", highlight=False)
        raise


@contextmanager
def trial_bar(console: Console) -> Iterator[Callable[[float, int], None]]:
    """Yields what tells how many simulations are done, and how many there may be. Ctrl-C is passed on, with a line that
    nothing is kept."""
    last = 0
    try:
        with _progress(console) as bars:
            task = bars.add_task("simulating", total=None)

            def told(done: float, planned: int) -> None:
                nonlocal last
                last = int(done)
                bars.update(task, completed=done, total=planned, description=f"simulating, {last} of {planned}")

            yield told
    except KeyboardInterrupt:
        console.print(f"interrupted after {last} simulations: no plan was written, and none of them is kept")
        raise


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
