"""The log's own thread ends whenever it is told to."""

from __future__ import annotations

from collections.abc import Callable
import threading
import time
from types import SimpleNamespace

import pytest

from samovar.pool.disk import background
from samovar.pool.disk.background import Background
from samovar.pool.disk.stats import Counters

LIMIT_S = 20.0


class Told(threading.Event):
    """Calls `before_clear`, once, when the thread is about to forget that it was woken."""

    def __init__(self) -> None:
        super().__init__()
        self.num_sets = 0
        self.before_clear: Callable[[], None] | None = None

    def set(self) -> None:
        super().set()
        self.num_sets += 1

    def clear(self) -> None:
        hook, self.before_clear = self.before_clear, None
        if hook is not None:
            hook()
        super().clear()


def ends(stopping: threading.Thread) -> bool:
    stopping.join(LIMIT_S)
    return not stopping.is_alive()


def stopping(worker: Background) -> threading.Thread:
    thread = threading.Thread(target=worker.stop, daemon=True)
    thread.start()
    return thread


def test_a_stop_just_before_the_wake_up_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "threading", SimpleNamespace(Event=Told, Thread=threading.Thread))
    worker = Background(lambda: False, Counters())
    wanted = worker._wanted
    assert isinstance(wanted, Told)
    stops: list[threading.Thread] = []
    came = threading.Event()

    def stop_comes_now() -> None:
        stops.append(stopping(worker))
        while wanted.num_sets < 2:  # The first is the wake-up's.
            time.sleep(0.001)
        came.set()

    wanted.before_clear = stop_comes_now
    worker.wake()
    assert came.wait(LIMIT_S)
    assert ends(stops[0]), "the thread forgot that it was told to end"


@pytest.mark.parametrize("more", [0, 3, 10**9])
def test_a_stop_while_there_is_work(more: int) -> None:
    begun = threading.Event()
    left = [more]

    def tend() -> bool:
        begun.set()
        left[0] -= 1
        return left[0] >= 0

    worker = Background(tend, Counters())
    worker.wake()
    assert begun.wait(LIMIT_S)
    assert ends(stopping(worker))


def test_a_stop_before_anything_was_asked_for() -> None:
    assert ends(stopping(Background(lambda: True, Counters())))
