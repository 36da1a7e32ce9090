"""Outputs cut in pieces and parsed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import itertools
from typing import Any

from samovar.text.answer import (
    Answer,
    AnswerEvent,
    CallArguments,
    CallBegin,
    CallEnd,
    OutputParser,
    ReasoningDelta,
    TextDelta,
    gather,
)
from samovar.text.formats.table import FORMATS

Schemas = Mapping[str, Mapping[str, Any]]


def events_of(parser: OutputParser, pieces: Iterable[str]) -> list[AnswerEvent]:
    """Adjacent deltas of one kind joined."""
    events: list[AnswerEvent] = []
    for piece in pieces:
        events += parser.push(piece)
    return joined([*events, *parser.finish()])


def joined(events: Iterable[AnswerEvent]) -> list[AnswerEvent]:
    out: list[AnswerEvent] = []
    for event in events:
        last = out[-1] if out else None
        match last, event:
            case TextDelta(a), TextDelta(b):
                out[-1] = TextDelta(a + b)
            case ReasoningDelta(a), ReasoningDelta(b):
                out[-1] = ReasoningDelta(a + b)
            case CallArguments(index, a), CallArguments(other, b) if index == other:
                out[-1] = CallArguments(index, a + b)
            case _:
                out.append(event)
    return out


def cut(text: str, places: Sequence[int]) -> list[str]:
    return [text[a:b] for a, b in itertools.pairwise([0, *sorted(places), len(text)])]


def parse(name: str, text: str, schemas: Schemas | None = None) -> Answer:
    """In one piece and character by character, which must give the same."""
    format = FORMATS[name]
    whole = events_of(format.make(schemas or {}), [text])
    assert events_of(format.make(schemas or {}), text) == whole
    check_order(whole)
    return gather(whole)


def calls(answer: Answer) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in answer.calls]


def check_order(events: Sequence[AnswerEvent]) -> None:
    """Calls count from 0, one at a time, and every one ends."""
    begun, open_call = 0, False
    for event in events:
        match event:
            case CallBegin():
                assert not open_call and event.index == begun
                begun, open_call = begun + 1, True
            case CallArguments() | CallEnd():
                assert open_call and event.index == begun - 1
                open_call = isinstance(event, CallArguments)
            case TextDelta() | ReasoningDelta():
                assert not open_call and event.text
    assert not open_call
