"""What `samovar simulate` and `samovar plan` show: bars while they work, in a pipe or log a line now and then, and
tables at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from samovar.cli.progress import Lines
from samovar.sim.plan_search import Told
from samovar.sim.plan_setup import Hardware
from samovar.sim.plan_tables import told_of
from samovar.sim.report_tables import WORDS, Table


def show(console: Console, table: Table) -> None:
    """Words may be folded, numbers never."""
    if not table.rows:
        return
    console.print(f"\n[bold]{escape(table.title)}[/]", highlight=False)
    if table.told:
        console.print(table.told, style="dim", highlight=False, markup=False)
    shown = RichTable(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for at, column in enumerate(table.head):
        words = at < table.left or column in WORDS
        shown.add_column(escape(column), justify="left" if words else "right", no_wrap=not words)
    for row in table.rows:
        shown.add_row(*(escape(cell) for cell in row))
    console.print(shown)


@contextmanager
def load_bars(console: Console, loads: Sequence[int]) -> Iterator[Callable[[int, float], None]]:
    """One bar per concurrency, worked on one after the other; yields what tells a share of one. Ctrl-C is passed on,
    with a line on what was finished."""
    begun: dict[int, None] = {}
    lines = Lines(console)
    try:
        with _progress(console) as bars:
            tasks = {load: bars.add_task(f"concurrency {load}", total=1.0, start=False) for load in loads}

            def told(load: int, share: float) -> None:
                begun[load] = None
                bars.start_task(tasks[load])
                bars.update(tasks[load], completed=share)
                lines.say(f"concurrency {load}: {share:.0%}")

            yield told
    except KeyboardInterrupt:
        done = ", ".join(map(str, [*begun][:-1]))
        kept = f"the folder holds results of concurrency {done}" if done else "there are no results"
        console.print(f"interrupted at concurrency {[*begun, *loads][max(len(begun) - 1, 0)]}: {kept}", highlight=False)
        raise


@contextmanager
def trial_bar(console: Console, hardware: Hardware) -> Iterator[Callable[[Told], None]]:
    """Yields what hears of a plan's simulations."""
    lines = Lines(console)
    with _progress(console) as bars:
        task = bars.add_task("simulating", total=None)

        def told(now: Told) -> None:
            count = f"{int(now.done)} of about {now.planned}"
            bars.update(task, completed=now.done, total=now.planned, description=f"simulating, {count}")
            if now.ended is not None:
                lines.say(f"{count} simulated, the last one: {told_of(hardware, now.ended)}")
            else:
                lines.say(f"{count} simulated")

        yield told


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
