"""Output items from what a model's output means, and the events that tell of them.

Every item that is added gets done with the same id, before the next is added; the items done are the answer's output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import json
from typing import Any, Literal, Protocol, TypeAlias

from samovar.serve.responses.sealed import seal
from samovar.serve.responses.tools import OuterName
from samovar.text.answer import AnswerEvent, CallArguments, CallBegin, CallEnd, ReasoningDelta, TextDelta

Event: TypeAlias = dict[str, Any]
"""Without its sequence number."""
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class Part(Protocol):
    """An item in the making; says what its events hold beside the item's id and place."""

    def item(self, status: ItemStatus) -> dict[str, Any]: ...
    def opening(self) -> list[Event]: ...
    def more(self, text: str) -> Event: ...
    def closing(self) -> list[Event]: ...


class TextPart:
    def __init__(self, id: str) -> None:
        self._id = id
        self._text: list[str] = []

    def item(self, status: ItemStatus) -> dict[str, Any]:
        content = [] if status == "in_progress" else [self._content()]
        return {"id": self._id, "type": "message", "status": status, "role": "assistant", "content": content}

    def opening(self) -> list[Event]:
        return [{"type": "response.content_part.added", "content_index": 0, "part": self._content()}]

    def more(self, text: str) -> Event:
        self._text.append(text)
        return {"type": "response.output_text.delta", "content_index": 0, "delta": text, "logprobs": []}

    def closing(self) -> list[Event]:
        part = self._content()
        return [
            {"type": "response.output_text.done", "content_index": 0, "text": part["text"], "logprobs": []},
            {"type": "response.content_part.done", "content_index": 0, "part": part},
        ]

    def _content(self) -> dict[str, Any]:
        return {"type": "output_text", "text": "".join(self._text), "annotations": [], "logprobs": []}


class ReasoningPart:
    """`as_summary`: the client shows summaries only. Nobody wrote one, so it gets the reasoning itself in that place.
    `sealed`: it comes back in `encrypted_content`, too, for clients that keep nothing else."""

    def __init__(self, id: str, *, as_summary: bool, sealed: bool) -> None:
        self._id = id
        self._as_summary = as_summary
        self._sealed = sealed
        self._text: list[str] = []

    def item(self, status: ItemStatus) -> dict[str, Any]:
        text, done = "".join(self._text), status != "in_progress"
        item: dict[str, Any] = {"id": self._id, "type": "reasoning", "status": status, "summary": []}
        if done and self._as_summary:
            item["summary"] = [{"type": "summary_text", "text": text}]
        elif done:
            item["content"] = [{"type": "reasoning_text", "text": text}]
        if done and self._sealed:
            item["encrypted_content"] = seal("reasoning", text)
        return item

    def opening(self) -> list[Event]:
        return [self._part_event("added")]

    def more(self, text: str) -> Event:
        self._text.append(text)
        return {**self._text_event("delta"), "delta": text}

    def closing(self) -> list[Event]:
        return [{**self._text_event("done"), "text": "".join(self._text)}, self._part_event("done")]

    def _part_event(self, what: str) -> Event:
        text = "".join(self._text)
        if self._as_summary:
            part = {"type": "summary_text", "text": text}
            return {"type": f"response.reasoning_summary_part.{what}", "summary_index": 0, "part": part}
        part = {"type": "reasoning_text", "text": text}
        return {"type": f"response.content_part.{what}", "content_index": 0, "part": part}

    def _text_event(self, what: str) -> Event:
        if self._as_summary:
            return {"type": f"response.reasoning_summary_text.{what}", "summary_index": 0}
        return {"type": f"response.reasoning_text.{what}", "content_index": 0}


class CallPart:
    """A call of a function (`arguments`, JSON text) or of a custom tool (`input`, any text)."""

    def __init__(self, id: str, call_id: str, name: str, namespace: str | None, *, custom: bool) -> None:
        self._id = id
        self._call_id = call_id
        self._name = name
        self._namespace = namespace
        self.custom = custom
        self._key = "input" if custom else "arguments"
        self._events = f"response.{'custom_tool_call_input' if custom else 'function_call_arguments'}"
        self._text: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._text)

    def item(self, status: ItemStatus) -> dict[str, Any]:
        kind = "custom_tool_call" if self.custom else "function_call"
        item = {"id": self._id, "type": kind, "status": status, "call_id": self._call_id, "name": self._name}
        if self._namespace is not None:
            item["namespace"] = self._namespace
        return {**item, self._key: "" if status == "in_progress" else self.text}

    def opening(self) -> list[Event]:
        return []

    def more(self, text: str) -> Event:
        self._text.append(text)
        return {"type": f"{self._events}.delta", "delta": text}

    def closing(self) -> list[Event]:
        return [{"type": f"{self._events}.done", self._key: self.text}]

    def whole(self) -> bool:
        """Whether it may be all that the model had to write."""
        try:
            return not self.custom and isinstance(json.loads(self.text), dict)
        except (ValueError, RecursionError):
            return False


class OutputItems:
    """`names`: the client's names of tools, by the model's. `nonce` makes the ids of items unique, and those of calls
    where the model gave none."""

    def __init__(self, names: Mapping[str, OuterName], nonce: str, *, as_summary: bool, sealed: bool) -> None:
        self._names = names
        self._nonce = nonce
        self._as_summary = as_summary
        self._sealed = sealed
        self._open: Part | None = None
        self._open_id = ""
        self._call: CallPart | None = None
        """A call that has ended but may have been cut off: known with what comes next."""
        self.done: list[dict[str, Any]] = []

    def take(self, happened: AnswerEvent) -> Iterator[Event]:
        if self._call is not None:
            yield from self._finish("completed")
        match happened:
            case TextDelta(text=text):
                if not isinstance(self._open, TextPart):
                    yield from self._begin(TextPart(self._new_id("msg")))
                yield self._more(text)
            case ReasoningDelta(text=text):
                if not isinstance(self._open, ReasoningPart):
                    id = self._new_id("rs")
                    yield from self._begin(ReasoningPart(id, as_summary=self._as_summary, sealed=self._sealed))
                yield self._more(text)
            case CallBegin():
                yield from self._begin(self._call_part(happened))
            case CallArguments(text=text):
                yield self._more(text)
            case CallEnd():
                assert isinstance(self._open, CallPart)
                if not self._open.custom and not self._open.text:
                    yield self._more("{}")
                self._call = self._open

    def finish(self, *, cut: bool) -> Iterator[Event]:
        """`cut`: the model had more to say. An answer has an item at least."""
        if self._open is None and not self.done:
            yield from self._begin(TextPart(self._new_id("msg")))
        if self._open is not None:
            whole = self._call is not None and self._call.whole()
            yield from self._finish("incomplete" if cut and not whole else "completed")

    def abandon(self) -> Iterator[Event]:
        """The answer ends here, in the middle of whatever is open."""
        if self._open is not None:
            yield from self.finish(cut=True)

    def _begin(self, part: Part) -> Iterator[Event]:
        if self._open is not None:
            yield from self._finish("completed")
        self._open = part
        item = part.item("in_progress")
        self._open_id = item["id"]
        yield {"type": "response.output_item.added", "output_index": len(self.done), "item": item}
        yield from self._placed(part.opening())

    def _more(self, text: str) -> Event:
        assert self._open is not None
        (event,) = self._placed([self._open.more(text)])
        return event

    def _finish(self, status: ItemStatus) -> Iterator[Event]:
        assert self._open is not None
        yield from self._placed(self._open.closing())
        item = self._open.item(status)
        yield {"type": "response.output_item.done", "output_index": len(self.done), "item": item}
        self.done.append(item)
        self._open = self._call = None

    def _placed(self, events: Sequence[Event]) -> list[Event]:
        return [{**event, "item_id": self._open_id, "output_index": len(self.done)} for event in events]

    def _call_part(self, begun: CallBegin) -> CallPart:
        # The model may have made the name up.
        outer = self._names.get(begun.name) or OuterName(begun.name)
        id = self._new_id("ctc" if outer.custom else "fc")
        call_id = begun.id or self._new_id("call")
        return CallPart(id, call_id, outer.name, outer.namespace, custom=outer.custom)

    def _new_id(self, kind: str) -> str:
        # An open item is done before the next one takes its number.
        return f"{kind}_{self._nonce}{len(self.done) + (self._open is not None):02x}"
