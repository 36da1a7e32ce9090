"""A child process as its parent's event loop sees it: started, heard on stderr, awaited, ended. Torch-free."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading

_BRIEF_SPIN = {"GOMP_SPINCOUNT": "10000"}
"""How long OpenMP's threads spin at a barrier before they sleep. By default "for ever": where other processes want the
same cores, a decode step then takes 20 times as long (docs/log.md). What the user has set goes before it."""

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
"""Of the parent and its child alike: the lines of both stand in one log."""

_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")
_CHATTER = ("DEBUG ", "INFO ", "WARNING ")
"""How lines of the log begin, behind their time, that no process dies of."""

_HEARD_S = 0.5
"""How long after an exit its last words may still be on their way through stderr."""


class Child:
    """Runs `python -m module` with `first_line` on its stdin, which then stays open: its end tells the child that its
    parent is gone. What it writes to stderr goes on to ours. Create it inside a running loop."""

    def __init__(self, module: str, first_line: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[int] = self._loop.create_future()
        self.last_line = ""
        """Of what it wrote to stderr, chatter apart: perhaps why it ended."""
        # A process group of its own: a Ctrl-C at the terminal reaches the parent alone, from the first moment on.
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
            env={**_BRIEF_SPIN, **os.environ},
        )
        self._listener = threading.Thread(target=self._listen, name="engine-stderr", daemon=True)
        self._listener.start()
        threading.Thread(target=self._await_exit, name="engine-exit", daemon=True).start()
        self._write(first_line)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """The exit code; minus the signal's number when a signal ended it."""
        return await asyncio.shield(self._exited)

    async def end(self, grace_s: float) -> None:
        """Waits for the exit `grace_s`, then sends SIGTERM, then SIGKILL."""
        for ask in (self._process.terminate, self._process.kill):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.wait(), grace_s)
                break
            ask()
        await self.wait()
        self._hang_up()

    def kill(self) -> None:
        self._process.kill()

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        # A child that died at once shows in its exit code, not here.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def _hang_up(self) -> None:
        assert self._process.stdin is not None and self._process.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if not self._listener.is_alive():
            self._process.stderr.close()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for raw in self._process.stderr:
            line = raw.decode("utf-8", "replace").rstrip()
            found = _TIME.match(line)
            told = line[found.end() :] if found else line
            if told and not told.startswith(_CHATTER):
                self.last_line = told
            # Our own stderr may be closed while the process ends.
            with contextlib.suppress(ValueError, OSError):
                print(line, file=sys.stderr)

    def _await_exit(self) -> None:
        code = self._process.wait()
        self._listener.join(_HEARD_S)
        # The loop may be gone by then: then nobody waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, code)

    def _settle(self, code: int) -> None:
        if not self._exited.done():
            self._exited.set_result(code)


def describe_exit(code: int) -> str:
    """In words: killed by SIGKILL, or exit code 1."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
