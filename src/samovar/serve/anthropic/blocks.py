"""Answer events to content blocks, as the events of a stream; an answer as a whole is made from the same events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from samovar.serve.anthropic.inputs import InputText
from samovar.text.answer import AnswerEvent, CallArguments, CallBegin, CallEnd, ReasoningDelta, TextDelta

Event = dict[str, Any]


class Blocks:
    """One answer's content blocks, in order, never two open at a time. Text that is only whitespace makes no block:
    clients must not send such a block back."""

    def __init__(self, call_id: Callable[[int], str], signature: str) -> None:
        """`call_id`: of the calls that have no id of their own, by number. `signature`: of every thought."""
        self._call_id = call_id
        self._signature = signature
        self._index = -1
        self._open: str | None = None
        self._blank = ""
        """Whitespace that may turn out to be the beginning of a text."""
        self._input = InputText()

    def take(self, event: AnswerEvent) -> list[Event]:
        match event:
            case TextDelta(text=text):
                return self._text(text)
            case ReasoningDelta(text=text):
                begin = [] if self._open == "thinking" else self._begin({"type": "thinking", "thinking": ""})
                self._blank = ""
                return [*begin, self._delta({"type": "thinking_delta", "thinking": text})]
            case CallBegin(index=call, name=name, id=id):
                self._input = InputText()
                return self._begin({"type": "tool_use", "id": id or self._call_id(call), "name": name, "input": {}})
            case CallArguments(text=text):
                return self._json(self._input.push(text))
            case CallEnd():
                return self.finish()

    def finish(self) -> list[Event]:
        """Ends the open block, if there is one."""
        ended, self._open, self._blank = self._open, None, ""
        match ended:
            case None:
                return []
            case "thinking":
                last = [self._delta({"type": "signature_delta", "signature": self._signature})]
            case "tool_use":
                last = self._json(self._input.finish())
            case _:
                last = []
        return [*last, {"type": "content_block_stop", "index": self._index}]

    def _text(self, text: str) -> list[Event]:
        begin: list[Event] = []
        if self._open != "text":
            text = self._blank + text
            if not text.strip():
                self._blank = text
                return []
            begin = self._begin({"type": "text", "text": ""})
        return [*begin, self._delta({"type": "text_delta", "text": text})]

    def _begin(self, block: Event) -> list[Event]:
        """Also ends the block before."""
        ended = self.finish()
        self._index += 1
        self._open = block["type"]
        if self._open == "thinking":
            block["signature"] = ""
        return [*ended, {"type": "content_block_start", "index": self._index, "content_block": block}]

    def _json(self, text: str) -> list[Event]:
        return [self._delta({"type": "input_json_delta", "partial_json": text})] if text else []

    def _delta(self, delta: Event) -> Event:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


def content_of(events: Iterable[Event]) -> list[Event]:
    """The blocks as a whole. Inputs stay the JSON text that they are."""
    content: list[Event] = []
    pieces: dict[str, list[str]] = {}
    for event in events:
        match event["type"]:
            case "content_block_start":
                content.append(dict(event["content_block"]))
                pieces = {}
            case "content_block_delta":
                for key, value in event["delta"].items():
                    if key != "type":
                        pieces.setdefault(key, []).append(value)
            case _:
                for key, values in pieces.items():
                    joined = "".join(values)
                    if key == "partial_json":
                        content[-1]["input"] = msgspec.Raw(joined.encode())
                    else:
                        content[-1][key] = joined
    return content
