"""What a model's output means: text, reasoning and tool calls, as events while it arrives and as a whole at its end.

Every API writes its own form of these; every parser of an output format (`text.formats`) gives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A tool call, known by name from here on. Calls of one answer count from 0; one ends before the next begins."""

    index: int
    name: str
    id: str | None = None
    """Only where the output format has ids of its own."""


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the arguments' JSON text (of the raw input, for a custom tool), as the model wrote it."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    index: int


AnswerEvent: TypeAlias = TextDelta | ReasoningDelta | CallBegin | CallArguments | CallEnd


class OutputParser(Protocol):
    """One per choice. The events of an output, adjacent deltas of one kind joined, do not depend on where it is cut."""

    def push(self, text: str) -> list[AnswerEvent]:
        """What became certain with this piece."""
        ...

    def finish(self) -> list[AnswerEvent]:
        """The rest, at the end of the output. Every call that began has ended then."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: str
    """JSON text of an object, "{}" for none; the raw input of a custom tool."""
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole output: what a client gets, and sends back as history in its next turn."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


def gather(events: Sequence[AnswerEvent]) -> Answer:
    """All events of one output as a whole."""
    text: list[str] = []
    reasoning: list[str] = []
    begun: list[CallBegin] = []
    arguments: list[list[str]] = []
    for event in events:
        match event:
            case TextDelta():
                text.append(event.text)
            case ReasoningDelta():
                reasoning.append(event.text)
            case CallBegin():
                begun.append(event)
                arguments.append([])
            case CallArguments():
                arguments[event.index].append(event.text)
            case CallEnd():
                pass
    calls = tuple(
        Call(call.name, "".join(parts) or "{}", call.id) for call, parts in zip(begun, arguments, strict=True)
    )
    return Answer("".join(text), "".join(reasoning), calls)


def merged(events: Sequence[AnswerEvent]) -> tuple[AnswerEvent, ...]:
    """Adjacent deltas of one kind as one."""
    out: list[AnswerEvent] = []
    pieces: list[str] = []

    def flush() -> None:
        if pieces:
            last = out.pop()
            assert isinstance(last, (TextDelta, ReasoningDelta, CallArguments))
            out.append(replace(last, text="".join(pieces)))
            pieces.clear()

    for event in events:
        if not isinstance(event, (TextDelta, ReasoningDelta, CallArguments)):
            flush()
            out.append(event)
            continue
        if not pieces or type(out[-1]) is not type(event):
            flush()
            out.append(event)
        pieces.append(event.text)
    flush()
    return tuple(out)
