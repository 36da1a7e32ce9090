"""Tables and bars of simulations, on a terminal and in a pipe."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from samovar.cli.sim_screen import load_bars, show, trial_bar
from samovar.sim.report_tables import Table

TABLE = Table(
    "Title [with] brackets",
    ("lanes", "tok/s", "bound by"),
    (("64", "12,345.6", "bandwidth (40% of a turn): bytes per second of the device's memory; then launch (20%)"),),
    told="below it",
)


def console(width: int = 60, terminal: bool = True) -> tuple[Console, StringIO]:
    out = StringIO()
    return Console(file=out, force_terminal=terminal, width=width, color_system=None), out


def test_words_are_folded_and_numbers_never() -> None:
    made, out = console(width=40)
    show(made, TABLE)
    text = out.getvalue()
    assert "Title [with] brackets" in text and "below it" in text and "12,345.6" in text
    assert max(len(line) for line in text.splitlines()) <= 40
    assert text.replace("\n", " ").split()[-1] == "(20%)"


def test_an_empty_table_is_not_shown() -> None:
    made, out = console()
    show(made, Table("nothing", ("a",), ()))
    assert out.getvalue() == ""


def test_bars_tell_shares_and_leave_pipes_alone() -> None:
    for terminal in (True, False):
        made, out = console(terminal=terminal)
        with load_bars(made, (1, 64)) as told:
            told(1, 0.5)
            told(1, 1.0)
            told(64, 0.25)
        with trial_bar(made) as planned:
            planned(3.5, 70)
            planned(12, 70)
        assert ("concurrency 64" in out.getvalue()) is terminal
        assert ("simulating, 12 of 70" in out.getvalue()) is terminal


def test_an_interrupt_is_passed_on_with_what_is_left() -> None:
    for ended, words in (
        ((), "interrupted at concurrency 1: there are no results"),
        ((1,), "interrupted at concurrency 1: there are no results"),
        ((1, 4), "interrupted at concurrency 4: the folder holds results of concurrency 1\n"),
        ((1, 4, 64), "interrupted at concurrency 64: the folder holds results of concurrency 1, 4\n"),
    ):
        made, out = console(width=120, terminal=False)
        with pytest.raises(KeyboardInterrupt), load_bars(made, (1, 4, 64)) as told:
            for load in ended:
                told(load, 0.5)
            raise KeyboardInterrupt
        assert words in out.getvalue()
    made, out = console(width=120, terminal=False)
    with pytest.raises(KeyboardInterrupt), trial_bar(made) as planned:
        planned(3.5, 70)
        raise KeyboardInterrupt
    assert "interrupted after 3 simulations: no plan was written" in out.getvalue()
