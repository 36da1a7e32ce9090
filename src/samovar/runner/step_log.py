"""The log of a runner's steps: JSON lines with what each of them did and how long it took.

`samovar simulate --steps` reads such a log as it is; a line says more than that needs, for finer models. Torch-free.
"""

from __future__ import annotations

from collections.abc import Iterator
import logging
from pathlib import Path
from typing import BinaryIO

import msgspec

from samovar.base.errors import ConfigError
from samovar.core.plan import StepPlan

log = logging.getLogger(__name__)


class StepLine(msgspec.Struct, frozen=True):
    """One step with chunks."""

    step: int
    end_s: float
    """By the machine's monotonic clock."""
    seconds: float
    """Since the step before it ended or its plan came, whichever was later: what it cost in a row of steps."""
    batch: int
    """Requests in it."""
    prefill_tokens: int
    kv_read_tokens: int
    """Of all contexts; a decoding request's holds the token it computes."""
    context_tokens: int
    """Of the decoding requests alone."""
    chunks: tuple[tuple[int, int], ...]
    """Of prompts: new tokens, and how many there were before them."""

    @property
    def decodes(self) -> int:
        return self.batch - len(self.chunks)


def line_of(plan: StepPlan, began_s: float, ended_s: float) -> StepLine:
    """A prompt's last token alone counts as a decoding request, which is what it costs."""
    context = sum(chunk.start + 1 for chunk in plan.chunks if chunk.num_tokens == 1)
    chunks = tuple((chunk.num_tokens, chunk.start) for chunk in plan.chunks if chunk.num_tokens > 1)
    return StepLine(
        step=plan.step,
        end_s=ended_s,
        seconds=ended_s - began_s,
        batch=len(plan.chunks),
        prefill_tokens=sum(new for new, _ in chunks),
        kv_read_tokens=context + sum(before for _, before in chunks),
        context_tokens=context,
        chunks=chunks,
    )


class StepLog:
    """Writes through a buffer, from the runner's thread. A disk that fails ends the log, not the engine."""

    def __init__(self, path: Path) -> None:
        """Creates or overwrites the file; raises ConfigError when it cannot."""
        self._path = path
        self._encoder = msgspec.json.Encoder()
        try:
            self._file: BinaryIO | None = path.open("wb")
        except OSError as error:
            raise ConfigError(f"--step-log {path}: cannot be written: {error.strerror}", param="step_log") from error

    def write(self, plan: StepPlan, began_s: float, ended_s: float) -> None:
        if self._file is None or not plan.chunks:
            return
        try:
            self._file.write(self._encoder.encode(line_of(plan, began_s, ended_s)) + b"\n")
        except OSError as error:
            log.warning("the step log %s ends here: %s", self._path, error)
            self._end()

    def close(self) -> None:
        """Idempotent."""
        self._end()

    def _end(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                log.warning("the end of the step log %s is lost: %s", self._path, error)


def read_step_log(path: Path) -> Iterator[StepLine]:
    """A line cut off by a crash ends it; anything else malformed raises ConfigError."""
    decoder = msgspec.json.Decoder(StepLine)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decoder.decode(line)
            except msgspec.DecodeError as error:
                raise ConfigError(f"{path}: line {number}: {error}") from error
