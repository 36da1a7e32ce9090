"""A file descriptor that one thread makes readable to wake another out of a poll."""

from __future__ import annotations

import contextlib
import os


class Wake:
    """`notify` is for any thread or signal handler, even after `close`; `clear` for the thread that polls."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._open = True

    def fileno(self) -> int:
        return self._read

    def notify(self) -> None:
        if self._open:
            # A full pipe is as good as another byte in it.
            with contextlib.suppress(BlockingIOError, OSError):
                os.write(self._write, b"\0")

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass

    def close(self) -> None:
        if self._open:
            self._open = False
            os.close(self._read)
            os.close(self._write)
