"""The engine's process: `python -m samovar.runner.process`, started by `client`.

One line of JSON arrives on stdin; stdin then stays open, and its end means that the parent is gone. The parent decides
what a Ctrl-C means, so SIGINT is ignored here; SIGTERM stops after the step in hand.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import gc
import logging
import os
from pathlib import Path
import signal
import sys
import threading
from types import FrameType

import msgspec

from samovar.base.errors import SamovarError
from samovar.core.events import ErrorInfo
from samovar.runner.boot import Booted, boot
from samovar.runner.child import LOG_FORMAT
from samovar.runner.driver import Driver
from samovar.runner.link import Link
from samovar.runner.messages import Fatal, Launch, Progress, Ready
from samovar.runner.wake import Wake

log = logging.getLogger("samovar.engine")

FLUSH_S = 2.0
"""For what is to survive a restart to become durable, once nothing is served any more."""
GRACE_S = 5.0
"""How long an ending process may take once its parent is gone or its work is done."""


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=LOG_FORMAT)
    launch = msgspec.json.decode(sys.stdin.buffer.readline(), type=Launch)
    link = Link(launch.address)
    try:
        _serve(launch, link)
    except Exception as error:
        info = ErrorInfo.of(error) if isinstance(error, SamovarError) else _unforeseen(error)
        # The parent shows the message; only where the error came from would be lost with this process.
        if launch.config.debug or not isinstance(error, SamovarError):
            log.error("%s", info.message, exc_info=True)
        link.send(Fatal(info))
        link.close()
        return 1
    link.close()
    return 0


def _serve(launch: Launch, link: Link) -> None:
    wake = Wake()
    stop = _Stop()
    signal.signal(signal.SIGTERM, stop.on_signal)
    threading.Thread(target=_watch_parent, args=(stop, launch.address), name="parent", daemon=True).start()
    booted = boot(launch.config, lambda text: link.send(Progress(text)), wake.notify)
    try:
        _drive(booted, link, wake, stop)
    finally:
        booted.close(GRACE_S)


def _drive(booted: Booted, link: Link, wake: Wake, stop: _Stop) -> None:
    tiers = booted.tiers
    measured = tiers.measured if tiers is not None else None
    recovered = tiers.recovered if tiers is not None else ()
    driver = Driver(
        booted.engine, booted.runner, link, wake, booted.info.vocab_size, measured=measured, recovered=recovered
    )
    # The model's objects live as long as the process: out of every later collection.
    gc.collect()
    gc.freeze()
    link.send(Ready(booted.info))
    stop.calls(driver.stop)
    driver.run()
    if tiers is not None:
        tiers.lift_budget()
        driver.flush(FLUSH_S, lambda: tiers.not_durable_blocks() > 0)
        if left := tiers.not_durable_blocks():
            log.warning("%d blocks were not on disk after %.0f s and are given up", left, FLUSH_S)


class _Stop:
    """A wish to stop that may come before there is anything to stop."""

    def __init__(self) -> None:
        self._wished = threading.Event()
        self._stop: Callable[[], None] | None = None

    def on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self._stop is None:
            # Nothing serves yet: loading a model cannot be interrupted otherwise.
            os._exit(128 + signum)
        self.wish()

    def wish(self) -> None:
        self._wished.set()
        if self._stop is not None:
            self._stop()

    def calls(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        if self._wished.is_set():
            stop()


def _watch_parent(stop: _Stop, address: str) -> None:
    """Ends the process when stdin does. Nobody is left to read an answer, so a step that takes too long is cut off, nor
    to remove the socket's folder."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    socket = Path(address.removeprefix("ipc://"))
    with contextlib.suppress(OSError):
        socket.unlink(missing_ok=True)
        socket.parent.rmdir()
    stop.wish()
    threading.Event().wait(GRACE_S)
    os._exit(1)


def _unforeseen(error: Exception) -> ErrorInfo:
    return ErrorInfo(SamovarError.code, f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.stderr.flush()
    # A step may still run in the runner's thread: not waited for, and torch must not be torn down under it.
    os._exit(code)
