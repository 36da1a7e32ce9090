"""Compiles grammars and keeps the compiled ones: in the front end to refuse what does not compile, in the engine's
process to run them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
import threading

from llguidance import LLMatcher

from samovar.base.errors import ConfigError, InvalidField
from samovar.text.grammar.body import Grammar
from samovar.text.grammar.limits import (
    MAX_CACHED_BYTES,
    MAX_CACHED_GRAMMARS,
    MAX_ERROR_CHARACTERS,
    MAX_GRAMMAR_BYTES,
    parser_limits,
)
from samovar.text.grammar.vocabulary import Vocabulary


class GrammarError(Exception):
    """A grammar that does not compile, or that no output could match. Whoever catches it says to whom it belongs."""


class GrammarCompiler:
    """`load` makes the vocabulary, when the first grammar comes. Thread-safe; compiling takes up to about a second, so
    keep it off event loops. It releases the GIL."""

    def __init__(self, load: Callable[[], Vocabulary]) -> None:
        self._load = load
        self._vocabulary: Vocabulary | None = None
        self._loading = threading.Lock()
        self._lock = threading.Lock()
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()
        self._cached_bytes = 0

    def vocabulary(self) -> Vocabulary:
        """Raises what `load` raises, every time anew."""
        with self._loading:
            if self._vocabulary is None:
                self._vocabulary = self._load()
            return self._vocabulary

    def check(self, grammar: Grammar, param: str) -> None:
        """Raises InvalidField, naming the part at fault where one alone is, else `param`."""
        size = len(grammar.text.encode("utf-8"))
        if size > MAX_GRAMMAR_BYTES:
            raise InvalidField(
                f"{param}: the grammar made of it has {size} bytes; the limit is {MAX_GRAMMAR_BYTES}.", param=param
            )
        try:
            self.matcher(grammar.text)
        except GrammarError as error:
            for part in grammar.parts:
                fault = self._fault(part.text)
                if fault is not None:
                    raise InvalidField(f"{part.param}: {fault}.", param=part.param) from None
            raise InvalidField(f"{param}: {error}.", param=param) from None
        except ConfigError as error:
            raise InvalidField(f"{param}: {error.message}.", param=param) from None

    def matcher(self, text: str) -> LLMatcher:
        """A matcher at the beginning, for one request. What the library learns of the grammar while it works is shared
        by all that came from one compilation. Raises GrammarError."""
        with self._lock:
            found = self._compiled.get(text)
            if found is not None:
                self._compiled.move_to_end(text)
                return found.deep_copy()
        compiled = self._compile(text)
        with self._lock:
            self._keep(text, compiled)
        return compiled.deep_copy()

    def fresh(self, text: str) -> LLMatcher:
        """As `matcher`, sharing nothing with earlier ones: what they learned counts against the library's limits."""
        with self._lock:
            if self._compiled.pop(text, None) is not None:
                self._cached_bytes -= len(text)
        return self.matcher(text)

    def _keep(self, text: str, compiled: LLMatcher) -> None:
        if text not in self._compiled:
            self._cached_bytes += len(text)
        self._compiled[text] = compiled
        self._compiled.move_to_end(text)
        while len(self._compiled) > MAX_CACHED_GRAMMARS or self._cached_bytes > MAX_CACHED_BYTES:
            dropped, _ = self._compiled.popitem(last=False)
            self._cached_bytes -= len(dropped)

    def _compile(self, text: str) -> LLMatcher:
        compiled = LLMatcher(self.vocabulary().library, text, log_level=0, limits=parser_limits())
        if compiled.is_error():
            raise GrammarError(_message(compiled))
        # A grammar may compile and still match nothing; the first mask tells. On a copy: a mask can leave an error.
        trial = compiled.deep_copy()
        trial.compute_bitmask()
        if trial.is_error():
            raise GrammarError(f"nothing can match it, or it is too complex: {_message(trial)}")
        return compiled

    def _fault(self, text: str) -> str | None:
        try:
            self._compile(text)
        except GrammarError as error:
            return str(error)
        return None


def _message(matcher: LLMatcher) -> str:
    # The lines after the first show the grammar, most of which no client wrote.
    text = matcher.get_error().strip().partition("\n")[0]
    return text if len(text) <= MAX_ERROR_CHARACTERS else f"{text[:MAX_ERROR_CHARACTERS]}..."
