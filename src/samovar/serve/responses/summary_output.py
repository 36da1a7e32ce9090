"""The output of a compaction: one item, in which the summary comes back whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from samovar.base.errors import StepFailed
from samovar.serve.responses.items import COMPACTION
from samovar.serve.responses.output import Event
from samovar.serve.responses.sealed import seal
from samovar.text.answer import AnswerEvent, TextDelta


class SummaryItem:
    """Takes the text of an answer for the summary; what the model thought before it is nobody's."""

    def __init__(self, nonce: str) -> None:
        self._id = f"cmp_{nonce}00"
        self._text: list[str] = []
        self._begun = False
        self.done: list[dict[str, Any]] = []

    def take(self, happened: AnswerEvent) -> Iterator[Event]:
        if isinstance(happened, TextDelta):
            self._text.append(happened.text)
        if not self._begun:
            self._begun = True
            yield {"type": "response.output_item.added", "output_index": 0, "item": self._item("")}

    def finish(self, *, cut: bool) -> Iterator[Event]:
        """A summary that was cut off at its limit is still one. Raises StepFailed when there is none."""
        summary = "".join(self._text).strip()
        if not summary:
            raise StepFailed("The model wrote no summary of the conversation.")
        item = self._item(seal("summary", summary))
        if not self._begun:
            yield {"type": "response.output_item.added", "output_index": 0, "item": self._item("")}
        yield {"type": "response.output_item.done", "output_index": 0, "item": item}
        self.done.append(item)

    def abandon(self) -> Iterator[Event]:
        """Part of a summary is none: nobody gets it."""
        yield from ()

    def _item(self, sealed: str) -> dict[str, Any]:
        return {"id": self._id, "type": COMPACTION, "encrypted_content": sealed}
