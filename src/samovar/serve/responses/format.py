"""Answers of the Responses API, whole and as events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import time
from typing import Any, Literal, Protocol, TypeAlias

from samovar.base.errors import SamovarError
from samovar.serve.choice_text import Delta
from samovar.serve.job import Usage
from samovar.serve.json_output import KEEP_ALIVE, named_event
from samovar.serve.responses.objects import failure_fields, usage_fields
from samovar.serve.responses.output import Event
from samovar.text.answer import AnswerEvent

Response: TypeAlias = dict[str, Any]
Status = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]


class Output(Protocol):
    done: list[dict[str, Any]]

    def take(self, happened: AnswerEvent) -> Iterator[Event]: ...
    def finish(self, *, cut: bool) -> Iterator[Event]: ...
    def abandon(self) -> Iterator[Event]: ...


class ResponsesFormat:
    """Writes one job's answer; it has one choice. `heading`: of the response object; `ended` is told the object once it
    is final."""

    def __init__(self, heading: Mapping[str, Any], output: Output, ended: Callable[[Response], None]) -> None:
        self._heading = heading
        self._output = output
        self._ended = ended
        self._next = 0
        self._cut = False
        self._cancelled = False

    @property
    def keep_alive(self) -> bytes:
        return KEEP_ALIVE

    def begin(self) -> bytes:
        response = self.snapshot()
        return self._written(
            [
                {"type": "response.created", "response": response},
                {"type": "response.in_progress", "response": response},
            ]
        )

    def deltas(self, index: int, delta: Delta, usage: Usage) -> bytes:
        self._cut = delta.finish_reason == "length"
        return self._written(self._taken(delta))

    def end(self, usage: Usage) -> bytes:
        events = list(self._output.finish(cut=self._cut))
        response = self._complete(usage)
        return self._written([*events, {"type": f"response.{response['status']}", "response": response}])

    def error(self, error: SamovarError) -> bytes:
        events = list(self._output.abandon())
        response = self._response("cancelled" if self._cancelled else "failed")
        if not self._cancelled:
            response["error"] = failure_fields(error)
        self._ended(response)
        # The API has no event of its own for a cancelled response.
        last = "response.incomplete" if self._cancelled else "response.failed"
        return self._written([*events, {"type": last, "response": response}])

    def whole(self, answers: Sequence[Delta], usage: Usage) -> Response:
        (answer,) = answers
        self._cut = answer.finish_reason == "length"
        for _ in self._taken(answer):
            pass
        for _ in self._output.finish(cut=self._cut):
            pass
        return self._complete(usage)

    def snapshot(self) -> Response:
        """The response as it stands."""
        return self._response("cancelled" if self._cancelled else "in_progress")

    def cancel(self) -> None:
        """The next error is only the end of a response that somebody cancelled."""
        self._cancelled = True

    def _taken(self, delta: Delta) -> Iterator[Event]:
        for happened in delta.events:
            yield from self._output.take(happened)

    def _complete(self, usage: Usage) -> Response:
        response = self._response("incomplete" if self._cut else "completed")
        if self._cut:
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            response["completed_at"] = int(time.time())
        response["usage"] = usage_fields(usage)
        if usage.cache_report is not None:
            response["cache_report"] = usage.cache_report
        self._ended(response)
        return response

    def _response(self, status: Status) -> Response:
        return {
            **self._heading,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "output": list(self._output.done),
            "usage": None,
        }

    def _written(self, events: Iterable[Event]) -> bytes:
        return b"".join([self._event(event) for event in events])

    def _event(self, event: Event) -> bytes:
        number, self._next = self._next, self._next + 1
        return named_event(event["type"], {**event, "sequence_number": number})


class CompactionFormat(ResponsesFormat):
    """The answer of /v1/responses/compact: the window that replaces the conversation. `kept`: its messages."""

    def __init__(self, heading: Mapping[str, Any], output: Output, kept: Sequence[Any]) -> None:
        super().__init__(heading, output, lambda response: None)
        self._kept = kept

    def whole(self, answers: Sequence[Delta], usage: Usage) -> Response:
        response = super().whole(answers, usage)
        names = ("id", "created_at", "usage", "cache_report", "kv_hints")
        answer = {name: response[name] for name in names if name in response}
        return {**answer, "object": "response.compaction", "output": [*self._kept, *response["output"]]}
