"""One choice: the engine's outputs to what a client sees: text and tool calls, log probabilities, how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from samovar.base.errors import Draining, StepFailed
from samovar.core.events import FinishReason, Miss, Output
from samovar.core.plan import TokenLogprobs
from samovar.text.answer import Answer, AnswerEvent, CallBegin, OutputParser, ReasoningDelta, gather, merged
from samovar.text.detokenizer import IncrementalDetokenizer
from samovar.text.output import OutputText
from samovar.text.stop import StopMatcher
from samovar.text.tokenizer import Tokenizer

EndReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How tokens become text, the same for every choice of a request."""

    stops: tuple[str, ...] = ()
    include_stop: bool = False
    """Show the stop string, or the stop token, that ended the output."""
    skip_special_tokens: bool = True
    markers: frozenset[int] = frozenset()
    """Special tokens whose text the parser needs: never skipped."""
    at_start: bool = True
    """As in `IncrementalDetokenizer`: False when the output continues a text of the prompt."""
    min_tokens: int = 0
    """Stop strings are not looked for in the text of this many first tokens."""
    eos_ids: tuple[int, ...] = ()
    """EndReason with one of these is an ordinary end: it gives no stop reason."""
    logprobs: int = -1
    """As in `core.sampling`: alternatives per token, -1 for none at all."""


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A shown token with its log probability."""

    data: bytes
    """The token's exact bytes."""
    logprob: float
    top: tuple[tuple[bytes, float], ...]
    """The most likely tokens, best first."""
    offset: int
    """Characters of output that began before it."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What is new of a choice."""

    text: str
    """As generated, whatever it means."""
    token_ids: tuple[int, ...]
    """Every new token, the one that ended the output among them."""
    logprobs: tuple[TokenInfo, ...] = ()
    finish_reason: EndReason | None = None
    stop_reason: str | int | None = None
    """The stop string, or the stop token that is no EOS."""
    events: tuple[AnswerEvent, ...] = ()
    """What the text means; () where nothing parses it."""


class ChoiceText:
    """Reads one choice's outputs in order.

    `num_tokens` counts output tokens up to and including the one that ended the output or completed a stop string.
    `stopped_early`: a stop string was found while the engine still runs; the caller tells the engine.
    """

    def __init__(self, tokenizer: Tokenizer, options: TextOptions, parser: OutputParser | None = None) -> None:
        self._tokenizer = tokenizer
        self._options = options
        self._parser = parser
        skipped = tokenizer.special_ids if options.skip_special_tokens else frozenset[int]()
        self._hidden_ids = skipped - options.markers
        self._output = OutputText(
            IncrementalDetokenizer(tokenizer, self._hidden_ids, options.at_start),
            StopMatcher(options.stops, options.include_stop),
            options.min_tokens,
        )
        self._characters = 0
        self._text: list[str] = []
        self._ids: list[int] = []
        self._infos: list[TokenInfo] = []
        self._events: list[AnswerEvent] = []
        self._all_ids: list[int] = []
        self._all_events: list[AnswerEvent] = []
        self._calls = False
        self.num_tokens = 0
        self.num_cached_tokens = 0
        self.num_reasoning_tokens = 0
        """Tokens that showed as reasoning, its marks left out."""
        self.miss: Miss | None = None
        """Why the cache had no more of the prompt; known with the first token."""
        self.finished = False
        self.stopped_early = False

    def push(self, outputs: Sequence[Output]) -> Delta | None:
        """What the outputs add; None while there is nothing to show (it comes with a later one). Raises the error
        that an output ended with."""
        for output in outputs:
            self.num_cached_tokens = max(self.num_cached_tokens, output.num_cached_tokens)
            self.miss = output.miss or self.miss
            stop = self._read(output)
            if stop is not None:
                self.stopped_early = output.finish is None
                return self._end("stop", stop)
            if output.finish is not None:
                return self._finish(output)
        return self._delta(None, None) if self._something_to_show() else None

    @property
    def token_ids(self) -> list[int]:
        """Everything generated so far that belongs to the answer."""
        return self._all_ids

    @property
    def answer(self) -> Answer:
        """All of it, as a client gets it."""
        return gather(self._all_events)

    def _something_to_show(self) -> bool:
        return bool(self._text if self._parser is None else self._events)

    def _read(self, output: Output) -> str | None:
        """Takes an output's tokens; returns the stop string that ended the text."""
        ids = output.token_ids
        shown = len(ids)
        if output.stop_token is not None and not self._options.include_stop:
            shown = max(shown - 1, 0)
        before = len(self._events)
        piece = self._output.push(ids[:shown])
        self._show(piece.text)
        taken = len(ids) if piece.stop is None else piece.num_tokens
        if any(isinstance(event, ReasoningDelta) for event in self._events[before:]):
            self.num_reasoning_tokens += taken
        self._ids.extend(ids[:taken])
        self._all_ids.extend(ids[:taken])
        self.num_tokens += taken
        for token, logprobs in zip(ids[: min(taken, shown)], output.logprobs, strict=False):
            self._infos.append(self._info(token, logprobs))
        return piece.stop

    def _show(self, text: str) -> None:
        if text:
            self._text.append(text)
            if self._parser is not None:
                self._take(self._parser.push(text))

    def _take(self, events: Sequence[AnswerEvent]) -> None:
        self._events.extend(events)
        self._all_events.extend(events)
        self._calls = self._calls or any(isinstance(event, CallBegin) for event in events)

    def _info(self, token: int, logprobs: TokenLogprobs) -> TokenInfo:
        data = self._tokenizer.token_bytes(token)
        wanted = logprobs.top[: max(self._options.logprobs, 0)]
        top = tuple((self._tokenizer.token_bytes(other), value) for other, value in wanted)
        info = TokenInfo(data, logprobs.logprob, top, self._characters)
        if token not in self._hidden_ids:
            self._characters += sum(byte & 0xC0 != 0x80 for byte in data)
        return info

    def _finish(self, output: Output) -> Delta:
        if output.finish is FinishReason.ERROR:
            raise output.error.exception() if output.error else StepFailed("The engine could not finish this request.")
        if output.finish is FinishReason.ABORT:
            raise Draining("The server ended this request before it was complete.")
        rest = self._output.finish()
        self._show(rest.text)
        if rest.stop is not None:
            return self._end("stop", rest.stop)
        if output.finish is FinishReason.LENGTH:
            return self._end("length", None)
        token = output.stop_token
        return self._end("stop", None if token in self._options.eos_ids else token)

    def _end(self, reason: EndReason, stop_reason: str | int | None) -> Delta:
        self.finished = True
        if self._parser is not None:
            self._take(self._parser.finish())
        # A stop string may have cut a call short: then it is no answer that asks for a tool.
        if self._calls and reason == "stop" and not isinstance(stop_reason, str):
            reason = "tool_calls"
        return self._delta(reason, stop_reason)

    def _delta(self, reason: EndReason | None, stop_reason: str | int | None) -> Delta:
        delta = Delta(
            "".join(self._text), tuple(self._ids), tuple(self._infos), reason, stop_reason, merged(self._events)
        )
        for shown in (self._text, self._ids, self._infos, self._events):
            shown.clear()
        return delta
