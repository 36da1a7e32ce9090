"""All choices of a job as they come in: deltas of text, usage so far, and the measurements."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
import logging
import time
from typing import Any, Protocol

from samovar.base.errors import Draining, SamovarError
from samovar.core.events import Output
from samovar.serve.choice_text import ChoiceText, Delta
from samovar.serve.choices import Choices
from samovar.serve.errors import INTERNAL
from samovar.serve.job import Job, Usage, joined
from samovar.serve.metrics import ChoiceTimer, Metrics
from samovar.serve.misses import miss_line, miss_report
from samovar.serve.workers import Workers
from samovar.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


class Format(Protocol):
    """How one API writes an answer. One per job: it may remember what it has written."""

    @property
    def keep_alive(self) -> bytes:
        """What a stream gets that was silent for long."""
        ...

    def begin(self) -> bytes:
        """What a stream says once the engine has accepted the request, before anything is generated; mostly b""."""
        ...

    def deltas(self, index: int, delta: Delta, usage: Usage) -> bytes:
        """The events of a choice's news. `usage` so far; its cached tokens are final from the first delta on."""
        ...

    def end(self, usage: Usage) -> bytes:
        """What follows the last delta of the last choice."""
        ...

    def error(self, error: SamovarError) -> bytes:
        """An error in mid-stream, with whatever ends a stream."""
        ...

    def whole(self, answers: Sequence[Delta], usage: Usage) -> dict[str, Any]:
        """The answer that is not streamed: per choice everything in one delta."""
        ...


class Reading:
    """One reader per job. `close()` ends whatever still runs and completes the measurements; it is idempotent."""

    def __init__(
        self,
        job: Job,
        choices: Choices,
        tokenizer: Tokenizer,
        metrics: Metrics,
        workers: Workers,
        arrived_s: float,
        *,
        cache_log: bool = True,
    ) -> None:
        """`arrived_s`: of `time.monotonic`. `cache_log`: a line about the cache goes to the log at the end."""
        self._job = job
        self._choices = choices
        self._metrics = metrics
        self._prompt_tokens = sum(job.prompt_tokens)
        self._workers = workers
        self._unremembered: list[Callable[[], None]] = []
        self._cache_log = cache_log
        self._untold = set(range(len(job.requests)))
        """Choices of which the engine does not know yet how they ended."""
        self._texts = [
            ChoiceText(tokenizer, job.text, None if job.parser is None else job.parser()) for _ in job.requests
        ]
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
                    self._complete(index, delta.finish_reason)
        return deltas

    def _complete(self, index: int, reason: str) -> None:
        text = self._texts[index]
        self._timers[index].end("stop" if reason == "tool_calls" else reason, text.num_tokens, time.monotonic())
        answer = text.answer
        self._untold.discard(index)
        self._choices.ended(index, reason, [call.name for call in answer.calls] if reason == "tool_calls" else ())
        if self._job.remember is not None:
            self._unremembered.append(partial(self._job.remember, text.token_ids, answer))
        if self.done and self._cache_log:
            report = self._report(self.usage().cached_tokens)
            log.info("%s", miss_line(self._job.id, report, self._job.requests[0].session_id))

    async def settle(self) -> None:
        """Remembers the complete answers, off the event loop. Before the end of an answer is sent: the client's next
        turn follows it."""
        while self._unremembered:
            await self._workers.thread(self._unremembered.pop())

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
            cache_report=self._report(cached) if self._job.cache_report else None,
            reasoning_tokens=sum(text.num_reasoning_tokens for text in self._texts),
        )

    def _report(self, cached: int) -> dict[str, Any]:
        """Of the first choice: the others of a prompt find what it computes."""
        return miss_report(self._texts[0].miss, cached, self._prompt_tokens, self._job.difference)

    def failed(self, error: SamovarError, *, answered: bool) -> None:
        """Notes an error. `answered`: it goes out as an event; else the error handler counts it."""
        if answered:
            self._metrics.error(error.code)
        self._end("abort" if isinstance(error, Draining) else "error")

    def close(self) -> None:
        self._choices.close()
        self._end("abort")

    def _end(self, reason: str) -> None:
        """Of every choice that has not ended."""
        for timer, text in zip(self._timers, self._texts, strict=True):
            timer.end(reason, text.num_tokens, time.monotonic())
        for index in sorted(self._untold):
            self._choices.ended(index, reason)
        self._untold.clear()


async def whole_answer(reading: Reading, job: Job, format: Format) -> dict[str, Any]:
    """Reads everything, then writes one answer."""
    deltas: list[list[Delta]] = [[] for _ in job.requests]
    try:
        while not reading.done:
            for index, delta in await reading.next():
                deltas[index].append(delta)
        await reading.settle()
    except SamovarError as error:
        reading.failed(error, answered=False)
        raise
    return format.whole([joined(parts) for parts in deltas], reading.usage())


async def stream_answer(reading: Reading, format: Format, keepalive_s: float) -> AsyncIterator[bytes]:
    """Events as they become known; a sign of life whenever nothing was sent for `keepalive_s`, however busy the engine
    is. An error becomes an event of its own."""
    sent_s = time.monotonic()
    try:
        opening = format.begin()
        if opening:
            yield opening
        while not reading.done:
            deltas = await reading.next(max(0.0, sent_s + keepalive_s - time.monotonic()))
            events = b""
            if deltas:
                usage = reading.usage()
                events = b"".join([format.deltas(index, delta, usage) for index, delta in deltas])
            if events or time.monotonic() >= sent_s + keepalive_s:
                sent_s = time.monotonic()
                yield events or format.keep_alive
        await reading.settle()
        yield format.end(reading.usage())
    except SamovarError as error:
        reading.failed(error, answered=True)
        yield format.error(error)
    except Exception:
        log.exception("writing a stream failed")
        reading.failed(INTERNAL, answered=True)
        yield format.error(INTERNAL)
