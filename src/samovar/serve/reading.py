"""All choices of a job as they come in: deltas of text, usage so far, and the measurements."""

from __future__ import annotations

from collections.abc import AsyncIterator
import logging
import time
from typing import Any

from samovar.base.errors import Draining, SamovarError
from samovar.core.events import Output
from samovar.serve.chat_format import ChatFormat
from samovar.serve.choice_text import ChoiceText, Delta
from samovar.serve.choices import Choices
from samovar.serve.completion_format import CompletionFormat
from samovar.serve.errors import INTERNAL, error_body
from samovar.serve.job import Job, Usage, joined
from samovar.serve.json_output import DONE, KEEP_ALIVE, event
from samovar.serve.metrics import ChoiceTimer, Metrics
from samovar.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

Format = ChatFormat | CompletionFormat


class Reading:
    """One reader per job. `close()` ends whatever still runs and completes the measurements; it is idempotent."""

    def __init__(self, job: Job, choices: Choices, tokenizer: Tokenizer, metrics: Metrics, arrived_s: float) -> None:
        self._job = job
        self._choices = choices
        self._metrics = metrics
        self._prompt_tokens = sum(job.prompt_tokens)
        self._texts = [ChoiceText(tokenizer, job.text) for _ in job.requests]
        self._timers = [
            ChoiceTimer(metrics, arrived_s, job.prompt_tokens_of(index)) for index in range(len(job.requests))
        ]

    @property
    def done(self) -> bool:
        return all(text.finished for text in self._texts)

    async def next(self, timeout_s: float | None = None) -> list[tuple[int, Delta]]:
        """What there is to show now, all waiting outputs of a choice in one delta; may be empty. Raises the error that
        any choice ended with."""
        waiting: dict[int, list[Output]] = {}
        for arrival in await self._choices.next(timeout_s):
            if not self._texts[arrival.index].finished:
                self._timers[arrival.index].tokens(len(arrival.output.token_ids), arrival.at_s)
                waiting.setdefault(arrival.index, []).append(arrival.output)
        deltas = []
        for index, outputs in waiting.items():
            text = self._texts[index]
            delta = text.push(outputs)
            if text.stopped_early:
                self._choices.finish(index, text.num_tokens)
            if delta is not None:
                deltas.append((index, delta))
                if delta.finish_reason is not None:
                    self._timers[index].end(delta.finish_reason, text.num_tokens, time.monotonic())
        return deltas

    def usage(self) -> Usage:
        """A prompt counts once however many choices it has, and as cached only what no choice had to compute."""
        cached = 0
        for first in range(0, len(self._texts), self._job.n):
            begun = [text for text in self._texts[first : first + self._job.n] if text.num_tokens]
            cached += min((text.num_cached_tokens for text in begun), default=0)
        return Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=sum(text.num_tokens for text in self._texts),
            cached_tokens=cached,
        )

    def failed(self, error: SamovarError, *, answered: bool) -> None:
        """Notes an error. `answered`: it goes out as an event; else the error handler counts it."""
        if answered:
            self._metrics.error(error.code)
        self._end("abort" if isinstance(error, Draining) else "error")

    def close(self) -> None:
        self._choices.close()
        self._end("abort")

    def _end(self, reason: str) -> None:
        for timer, text in zip(self._timers, self._texts, strict=True):
            timer.end(reason, text.num_tokens, time.monotonic())


async def whole_answer(reading: Reading, job: Job, format: Format) -> dict[str, Any]:
    """Reads everything, then writes one answer."""
    deltas: list[list[Delta]] = [[] for _ in job.requests]
    try:
        while not reading.done:
            for index, delta in await reading.next():
                deltas[index].append(delta)
    except SamovarError as error:
        reading.failed(error, answered=False)
        raise
    return format.whole([joined(parts) for parts in deltas], reading.usage())


async def stream_answer(reading: Reading, job: Job, format: Format, keepalive_s: float) -> AsyncIterator[bytes]:
    """Events as they become known; a comment whenever nothing was sent for `keepalive_s`, however busy the engine is.
    An error becomes an event of its own; `[DONE]` comes last in any case."""
    sent_s = time.monotonic()
    try:
        while not reading.done:
            deltas = await reading.next(max(0.0, sent_s + keepalive_s - time.monotonic()))
            usage = reading.usage() if job.continuous_usage and deltas else None
            events = b"".join(event(chunk) for index, delta in deltas for chunk in format.chunks(index, delta, usage))
            if events or time.monotonic() >= sent_s + keepalive_s:
                sent_s = time.monotonic()
                yield events or KEEP_ALIVE
        if job.include_usage:
            yield event(format.usage_chunk(reading.usage()))
    except SamovarError as error:
        reading.failed(error, answered=True)
        yield event(error_body(error))
    except Exception:
        log.exception("writing a stream failed")
        reading.failed(INTERNAL, answered=True)
        yield event(error_body(INTERNAL))
    yield DONE
