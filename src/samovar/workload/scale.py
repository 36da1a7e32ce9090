"""Sessions made shorter with their reuse kept: for models and machines that cannot take the real lengths.

Ids are prefix-chained, so every nth id of a prompt names its prefix in blocks n times as coarse. Read as blocks of the
old size, they are a prompt of 1/n the length that shares with the others what it shared before.
"""

from __future__ import annotations

from dataclasses import replace

from samovar.base.errors import ConfigError
from samovar.workload.session import SessionTree, Stream, Turn, frozen_ids


def divisor(factor: float) -> int:
    """n for a factor of 1/n. Raises ConfigError for any other."""
    if not 0 < factor <= 1:
        raise ConfigError(f"--factor is {factor:g}; it must be more than 0 and at most 1")
    n = round(1 / factor)
    if abs(factor * n - 1) > 1e-6:
        raise ConfigError(f"--factor is {factor:g}; it must be 1 divided by a whole number, such as {1 / n:g} (1/{n})")
    return n


def scale_session(session: SessionTree, n: int) -> SessionTree:
    """All lengths divided by `n`; times stay. What was sent or answered keeps at least one token."""
    return replace(session, streams=tuple(_stream(stream, n) for stream in session.streams))


def _stream(stream: Stream, n: int) -> Stream:
    return replace(
        stream,
        turns=tuple(_turn(turn, n) for turn in stream.turns),
        tool_tokens=stream.tool_tokens // n,
        system_tokens=stream.system_tokens // n,
    )


def _turn(turn: Turn, n: int) -> Turn:
    return replace(
        turn,
        input_tokens=max(min(turn.input_tokens, 1), turn.input_tokens // n),
        output_tokens=max(min(turn.output_tokens, 1), round(turn.output_tokens / n)),
        blocks=frozen_ids(turn.blocks[n - 1 :: n].copy()),
    )
