"""Tables and bars of simulations, on a terminal and in a pipe."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from samovar.cli import sim_screen
from samovar.cli.progress import Lines
from samovar.cli.sim_screen import load_bars, show, trial_bar
from samovar.sim.plan_search import Told
from samovar.sim.report_tables import Table
from tests.sim.plan_made import hardware, trial

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


def test_bars_tell_shares_and_pipes_get_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim_screen, "Lines", lambda console: Lines(console, 0.0))
    for terminal in (True, False):
        made, out = console(width=120, terminal=terminal)
        with load_bars(made, (1, 64)) as told:
            told(1, 0.5)
            told(64, 0.25)
        with trial_bar(made, hardware()) as planned:
            planned(Told(3.5, 70))
            planned(Told(12, 70, trial(4802, 68.8, load=16)))
        text = out.getvalue()
        assert ("concurrency 64" in text) and ("simulating, 12 of about 70" in text) is terminal
        if not terminal:
            assert text.splitlines() == [
                "concurrency 1: 50%",
                "concurrency 64: 25%",
                "3 of about 70 simulated",
                "12 of about 70 simulated, the last one: 16 lanes, TP8: 4,802 tok/s/GPU at 68.8 tok/s (P90)",
            ]


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
