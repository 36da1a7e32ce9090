"""Progress on a terminal is a bar, elsewhere a line now and then."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from samovar.cli import progress
from samovar.cli.progress import Lines, counted


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def console(terminal: bool) -> tuple[Console, StringIO]:
    out = StringIO()
    return Console(file=out, force_terminal=terminal, width=60, color_system=None), out


def test_lines_come_at_most_every_few_seconds() -> None:
    made, out = console(terminal=False)
    clock = Clock()
    lines = Lines(made, 5.0, clock)
    for second in range(13):
        clock.now_s = 100.0 + second
        lines.say(f"at {second} [x]")
    assert out.getvalue().splitlines() == ["at 5 [x]", "at 10 [x]"]
    lines.note("ended")
    clock.now_s = 117.0 - 0.1
    lines.say("too soon after it")
    clock.now_s = 117.0
    lines.say("in time")
    assert out.getvalue().splitlines()[2:] == ["ended", "in time"]


def test_a_terminal_has_its_bar() -> None:
    made, out = console(terminal=True)
    clock = Clock()
    lines = Lines(made, 5.0, clock)
    clock.now_s = 200.0
    lines.say("late")
    lines.note("ended")
    assert out.getvalue() == ""


def test_counted_work(monkeypatch) -> None:
    for total, told in ((450, "replaying: 1,120 of 450"), (None, "replaying: 1,120")):
        made, out = console(terminal=False)
        lines = Lines(made, 0.0)
        monkeypatch.setattr(progress, "Lines", lambda console, lines=lines: lines)
        with counted(made, "replaying", total) as advance:
            advance(1120)
        assert out.getvalue().splitlines() == [told]
    made, out = console(terminal=True)
    monkeypatch.undo()
    with counted(made, "replaying", 450) as advance:
        advance(450)
    assert "replaying" in out.getvalue() and "450/450" in out.getvalue()


def test_short_work_says_nothing() -> None:
    made, out = console(terminal=False)
    with counted(made, "reading", 3) as advance:
        for done in range(4):
            advance(done)
    assert out.getvalue() == ""
