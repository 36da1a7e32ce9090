"""Constrained output in the runner: one matcher per request, and the masks of a step, made while the model computes.

A matcher is a function of the request's grammar and its output tokens. It lags behind: what was sampled is fed to it
just before the next mask, in the thread that makes masks, so a request that resumes after a preemption needs nothing
special, and a matcher is never touched by two threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
import logging

from llguidance import LLMatcher
import numpy as np
from numpy.typing import NDArray

from samovar.base.errors import SamovarError
from samovar.core.sampling import SamplingParams
from samovar.runner.filters import has_filters
from samovar.runner.token_mask import MaskBuffers, TokenMask
from samovar.text.grammar.compiler import GrammarCompiler, GrammarError
from samovar.text.grammar.vocabulary import Vocabulary

log = logging.getLogger(__name__)


class RequestGrammar:
    """The matcher of one request. Owned by its `RunnerRequest`; `mask` runs in the masks' thread, and whoever starts
    one waits for it before touching anything here."""

    def __init__(self, params: SamplingParams, compiler: GrammarCompiler, compiled: Future[LLMatcher]) -> None:
        self._params = params
        self._compiler = compiler
        self._compiled = compiled
        self._matcher: LLMatcher | None = None
        self._num_fed = 0

    def mask(self, output: NDArray[np.int32], mask: TokenMask, vocabulary: Vocabulary) -> None:
        """Makes `mask` for the token that follows `output`. Never raises: what is wrong with a grammar is its request's
        fault."""
        try:
            if len(output) < self._num_fed:
                # A step runs again; what its first outcome led to is void.
                self._matcher, self._num_fed = None, 0
            if self._matcher is None:
                self._compiled.result()
                self._matcher = self._compiler.matcher(self._params.grammar)
            made = self._next(self._matcher, output, mask, vocabulary)
            if not made:
                # Perhaps only what others made the library learn of this grammar has used up its limits.
                self._matcher, self._num_fed = self._compiler.fresh(self._params.grammar), 0
                made = self._next(self._matcher, output, mask, vocabulary)
            if not made:
                mask.fault = f"its grammar cannot go on: {_first_line(self._matcher.get_error())}"
            elif not mask.any():
                mask.fault = "its grammar allows no token here"
            elif self._params.temperature > 0 and has_filters(self._params):
                mask.expand()
        except GrammarError as error:
            mask.fault = f"its grammar cannot be used: {error}"
        except Exception as error:
            log.exception("making a mask failed")
            mask.fault = f"its grammar cannot be used: {type(error).__name__}: {error}"

    def _next(self, matcher: LLMatcher, output: NDArray[np.int32], mask: TokenMask, vocabulary: Vocabulary) -> bool:
        """False when the matcher fails."""
        new = output[self._num_fed :].tolist()
        # Tokens after the end are there when the client ignores it: all of them are end tokens.
        while new and not matcher.is_stopped():
            taken = matcher.try_consume_tokens(new)
            if taken == 0:
                break
            new = new[taken:]
        self._num_fed = len(output)
        if matcher.is_error() or (new and not (matcher.is_stopped() and set(new) <= set(vocabulary.eos_ids))):
            return False
        matcher.unsafe_compute_mask_ptr(mask.buffers.address(mask.row), mask.buffers.bits_bytes)
        if matcher.is_error():
            return False
        self._settle_ends(mask, len(output), matcher.is_accepting(), vocabulary)
        return True

    def _settle_ends(self, mask: TokenMask, position: int, accepting: bool, vocabulary: Vocabulary) -> None:
        """Where the answer may end it ends by this request's own stop tokens. `min_tokens` keeps those out as long as
        anything else may come. A request without stop tokens goes on with the vocabulary's end tokens once nothing
        else may come."""
        ends, stops = vocabulary.eos_ids, self._params.stop_token_ids
        if accepting:
            mask.put(ends, False)
            mask.put(stops, True)
        if position < self._params.min_tokens:
            allowed = [token for token in stops if mask.allows(token)]
            mask.put(allowed, False)
            if not mask.any():
                mask.put(allowed, True)
        if accepting and not stops and not mask.any():
            mask.put(ends, True)


class Masks:
    """Makes masks in a thread of its own, and compiles grammars in another: only the step of a request's first token
    waits for its grammar. Close it once."""

    def __init__(self, compiler: GrammarCompiler, num_tokens: int) -> None:
        """`num_tokens`: the vocabulary's, and the width of the logits."""
        self._compiler = compiler
        self._buffers = MaskBuffers(num_tokens)
        self._making = ThreadPoolExecutor(1, thread_name_prefix="masks")
        self._compiling = ThreadPoolExecutor(1, thread_name_prefix="grammars")

    def begin(self, params: SamplingParams) -> RequestGrammar:
        """Of a request that starts or resumes; returns at once."""
        compiled = self._compiling.submit(self._compiler.matcher, params.grammar)
        return RequestGrammar(params, self._compiler, compiled)

    def start(self, wanted: Sequence[tuple[int, RequestGrammar, NDArray[np.int32]]]) -> Future[dict[int, TokenMask]]:
        """Masks by row of logits, for (row, grammar, output so far). Wait for them before anything else is done with
        the grammars or before the outputs change; they are valid until the next call."""
        return self._making.submit(self._make, wanted)

    def _make(self, wanted: Sequence[tuple[int, RequestGrammar, NDArray[np.int32]]]) -> dict[int, TokenMask]:
        buffers = self._buffers
        buffers.reserve(len(wanted))
        masks = {row: TokenMask(buffers, place) for place, (row, _, _) in enumerate(wanted)}
        try:
            vocabulary = self._compiler.vocabulary()
        except SamovarError as error:
            for mask in masks.values():
                mask.fault = f"this engine cannot constrain output: {error.message}"
            return masks
        for row, grammar, output in wanted:
            grammar.mask(output, masks[row], vocabulary)
        return masks

    def close(self) -> None:
        self._making.shutdown(wait=False, cancel_futures=True)
        self._compiling.shutdown(wait=False, cancel_futures=True)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
