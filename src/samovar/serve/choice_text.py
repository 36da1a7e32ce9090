"""One choice: the engine's outputs to what a client sees: text, log probabilities and the reason it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from samovar.base.errors import Draining, StepFailed
from samovar.core.events import FinishReason, Output
from samovar.core.plan import TokenLogprobs
from samovar.text.detokenizer import IncrementalDetokenizer
from samovar.text.output import OutputText
from samovar.text.stop import StopMatcher
from samovar.text.tokenizer import Tokenizer

EndReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How tokens become text, the same for every choice of a request."""

    stops: tuple[str, ...] = ()
    include_stop: bool = False
    """Show the stop string, or the stop token, that ended the output."""
    skip_special_tokens: bool = True
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
    token_ids: tuple[int, ...]
    """Every new token, the one that ended the output among them."""
    logprobs: tuple[TokenInfo, ...] = ()
    finish_reason: EndReason | None = None
    stop_reason: str | int | None = None
    """The stop string, or the stop token that is no EOS."""


class ChoiceText:
    """Reads one choice's outputs in order.

    `num_tokens` counts output tokens up to and including the one that ended the output or completed a stop string.
    `stopped_early`: a stop string was found while the engine still runs; the caller tells the engine.
    """

    def __init__(self, tokenizer: Tokenizer, options: TextOptions) -> None:
        self._tokenizer = tokenizer
        self._options = options
        self._hidden_ids = tokenizer.special_ids if options.skip_special_tokens else frozenset[int]()
        self._output = OutputText(
            IncrementalDetokenizer(tokenizer, options.skip_special_tokens, options.at_start),
            StopMatcher(options.stops, options.include_stop),
            options.min_tokens,
        )
        self._characters = 0
        self._text: list[str] = []
        self._ids: list[int] = []
        self._infos: list[TokenInfo] = []
        self.num_tokens = 0
        self.num_cached_tokens = 0
        self.finished = False
        self.stopped_early = False

    def push(self, outputs: Sequence[Output]) -> Delta | None:
        """What the outputs add; None while there is nothing to show (it comes with a later one). Raises the error
        that an output ended with."""
        for output in outputs:
            self.num_cached_tokens = max(self.num_cached_tokens, output.num_cached_tokens)
            stop = self._read(output)
            if stop is not None:
                self.stopped_early = output.finish is None
                return self._end("stop", stop)
            if output.finish is not None:
                return self._finish(output)
        return self._delta(None, None) if self._text else None

    def _read(self, output: Output) -> str | None:
        """Takes an output's tokens; returns the stop string that ended the text."""
        ids = output.token_ids
        shown = len(ids)
        if output.stop_token is not None and not self._options.include_stop:
            shown = max(shown - 1, 0)
        piece = self._output.push(ids[:shown])
        self._show(piece.text)
        taken = len(ids) if piece.stop is None else piece.num_tokens
        self._ids.extend(ids[:taken])
        self.num_tokens += taken
        for token, logprobs in zip(ids[: min(taken, shown)], output.logprobs, strict=False):
            self._infos.append(self._info(token, logprobs))
        return piece.stop

    def _show(self, text: str) -> None:
        if text:
            self._text.append(text)

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
        return self._delta(reason, stop_reason)

    def _delta(self, reason: EndReason | None, stop_reason: str | int | None) -> Delta:
        delta = Delta("".join(self._text), tuple(self._ids), tuple(self._infos), reason, stop_reason)
        self._text.clear()
        self._ids.clear()
        self._infos.clear()
        return delta
