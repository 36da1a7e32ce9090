"""Ctrl-C while the program is still being loaded. Standard library only: this is imported before everything else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import os
import signal
import threading
from types import FrameType

INTERRUPTED = 130
"""Exit code of what Ctrl-C ended, as shells count: 128 + SIGINT."""


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Meanwhile Ctrl-C ends the process at once. As an exception it would surface wherever an import happens to be,
    some of which print it and go on. Off the main thread, where signals do not arrive, it changes nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
