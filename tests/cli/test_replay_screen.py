"""A replay in a log: figures now and then, what ended at once, the table last."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from samovar.bench.replay import Live
from samovar.cli import replay_screen
from samovar.cli.progress import Lines
from samovar.cli.replay_screen import LiveTable
from samovar.workload.replay_fit import Fitted
from tests.sim.plan_made import point


class Served:
    """What is told of a server."""

    model, url, form, form_reason = "m", "http://x", "tokens", ""
    max_tokens, block_tokens, block_tokens_known, forces_length = 4096, 16, True, True


def shown(terminal: bool, every_s: float) -> str:
    out = StringIO()
    console = Console(file=out, force_terminal=terminal, width=140, color_system=None)
    with pytest.MonkeyPatch.context() as patch, LiveTable(console, (4, 8)) as screen:
        patch.setattr(screen, "_lines", Lines(console, every_s))
        screen.begins(Served(), Fitted((), (), {}))  # type: ignore[arg-type]
        screen.live(Live(4, "warmup", in_flight=3, done=1, failed=2))
        screen.live(Live(4, "profile", 30.0, 60.0, lanes=4, in_flight=2, done=9))
        screen.ended(point(10.0, concurrency=4, ok=12, failed=1, cut=3))
        screen.ended(point(10.0, concurrency=8, ok=7))
    return out.getvalue()


def test_a_log_gets_lines() -> None:
    lines = shown(terminal=False, every_s=0.0).splitlines()
    assert lines[2:5] == [
        "concurrency 4: warm-up, 3 in flight, 1 done, 2 failed",
        "concurrency 4: 30 s · 4 lanes · 2 in flight · 9 done",
        "concurrency 4: 12 requests, 1 failed, 3 cut off",
    ]
    assert not any("concurrency 8" in line for line in lines), "the table says it"
    assert any("lanes" in line and "sent" in line for line in lines[5:])
    assert "concurrency 4: 12 requests" in shown(terminal=False, every_s=1e9)
    assert "warm-up" not in shown(terminal=False, every_s=1e9)


def test_a_terminal_gets_a_bar() -> None:
    text = shown(terminal=True, every_s=0.0)
    assert "12 requests, 1 failed, 3 cut off" in text and "concurrency 4: 12 requests" not in text
    assert replay_screen.beside_the_table([point(1.0, warmup_failed=1, warmup_requests=2)])
