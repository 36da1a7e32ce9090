"""Sessions made shorter with their reuse kept: for models and machines that cannot take the real lengths.

Ids are prefix-chained, so every nth id of a prompt names its prefix in blocks n times as coarse. Read as blocks of the
old size, they are a prompt of 1/n the length that shares with the others what it shared before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

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


NAMED = 8
"""Sessions named in a message."""


@dataclass(slots=True)
class ScaleCounts:
    """What `scaled` has met so far."""

    kept: int = 0
    emptied: list[str] = field(default_factory=list)
    """Ids of sessions left out, as no block of theirs was left."""

    def told(self) -> str:
        """One line about what was left out; "" for nothing."""
        if not self.emptied:
            return ""
        more = "" if len(self.emptied) <= NAMED else f" and {len(self.emptied) - NAMED} more"
        return (
            f"left out {len(self.emptied)} of {len(self.emptied) + self.kept} sessions, whose prompts all become "
            f"shorter than a block: {', '.join(self.emptied[:NAMED])}{more}"
        )


def scaled(
    sessions: Iterable[SessionTree], n: int, counts: ScaleCounts, flag: str = "--factor"
) -> Iterator[SessionTree]:
    """Each session with lengths divided by `n`. One whose prompts all become shorter than a block would reuse nothing,
    whatever it reused before: it is left out and noted in `counts`. Raises ConfigError when that is all of them."""
    for session in sessions:
        small = scale_session(session, n)
        if _has_blocks(session) and not _has_blocks(small):
            counts.emptied.append(session.id)
        else:
            counts.kept += 1
            yield small
    if counts.emptied and not counts.kept:
        raise ConfigError(
            f"{flag} is 1/{n}: every prompt of the {len(counts.emptied)} sessions becomes shorter than one block, and "
            "nothing is reused any more; choose a larger one"
        )


def _has_blocks(session: SessionTree) -> bool:
    return any(len(turn.blocks) for stream in session.streams for turn in stream.turns)


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
