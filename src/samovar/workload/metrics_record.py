"""What is kept of each request of a replay: the one form that metrics, report and simulator share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from samovar.base.errors import ConfigError
from samovar.workload.session import Role

Phase = Literal["warmup", "profile"]
Status = Literal["ok", "failed", "cut"]
"""`cut`: still running when the run ended, and cancelled."""
HitClass = Literal["cold", "whole", "part", "lost", "unknown"]


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Times are seconds since the measured part of the run began; negative in warm-up."""

    concurrency: int
    """Of the part of the run it belongs to."""
    lane: int
    tree: str
    """Id of the session tree in the trace."""
    visit: int
    """How many session trees this lane had begun before this one."""
    stream: int
    """Place of the agent in its tree; 0 is the main one."""
    turn: int
    role: Role
    phase: Phase
    status: Status
    error: str = ""

    due_s: float
    """When the replay let it go."""
    start_s: float
    first_s: float | None = None
    """First piece of the answer."""
    last_s: float | None = None
    """Last piece of the answer."""
    end_s: float
    """End of the HTTP stream, or of the failure."""

    planned_prompt_tokens: int
    prompt_tokens: int
    """As the server counted; the planned number when it did not say."""
    cached_tokens: int | None = None
    """As the server counted; None when it did not say."""
    ceiling_tokens: int | None
    """What an infinite cache would have found of the very prompt sent; None when nobody looked."""
    planned_output_tokens: int
    output_tokens: int
    tree_turns: int = 1
    """Model calls of the whole session tree, for cost per session."""

    @property
    def hit_class(self) -> HitClass:
        """cold: nothing could be found. whole: as much as an infinite cache. part: less. lost: nothing of it."""
        if self.cached_tokens is None or self.ceiling_tokens is None:
            return "unknown"
        if self.ceiling_tokens == 0:
            return "cold"
        if self.cached_tokens >= self.ceiling_tokens:
            return "whole"
        return "part" if self.cached_tokens else "lost"

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_s is None else self.first_s - self.start_s

    @property
    def latency_s(self) -> float | None:
        """To the last piece of the answer."""
        return None if self.last_s is None else self.last_s - self.start_s

    @property
    def itl_s(self) -> float | None:
        """Seconds per output token after the first, to the last piece. None for answers under two tokens."""
        if self.first_s is None or self.last_s is None or self.output_tokens < 2:
            return None
        return (self.last_s - self.first_s) / (self.output_tokens - 1)

    @property
    def full_itl_s(self) -> float | None:
        """As `itl_s`, but to the end of the HTTP stream."""
        if self.first_s is None or self.output_tokens < 2:
            return None
        return (self.end_s - self.first_s) / (self.output_tokens - 1)

    @property
    def e2e_per_token_s(self) -> float | None:
        latency = self.latency_s
        return None if latency is None or self.output_tokens < 1 else latency / self.output_tokens


def read_records(path: Path) -> Iterator[RequestRecord]:
    """Raises ConfigError with the line that is no record."""
    decoder = msgspec.json.Decoder(RequestRecord)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    try:
                        yield decoder.decode(line)
                    except msgspec.DecodeError as error:
                        raise ConfigError(f"{path}, line {number}: not a request record: {error}") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
