"""A file descriptor that one thread makes readable to wake another out of a poll."""

from __future__ import annotations

import contextlib
import os


class Wake:
    """`notify` is for any thread or signal handler, `clear` for the thread that polls. Lives as long as the process:
    a thread that is still at work may notify at any time."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        return self._read

    def notify(self) -> None:
        # A full pipe is as good as another byte in it.
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"\0")

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass
