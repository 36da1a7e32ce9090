"""How much work a client's grammar may cause. The library counts work, not time, so a grammar is refused, or ends its
request, at the same place on every machine."""

from __future__ import annotations

from llguidance import LLParserLimits

MAX_GRAMMAR_BYTES = 512 << 10
"""Text of one request's grammar, all its schemas together. A dense schema of this size compiles in about a second."""
MAX_CHOICES = 10_000
MAX_CALLS = 32
"""Parallel tool calls of one answer, where a grammar makes them."""
MAX_NUMBERED_CALLS = 8
"""The same where a call's number is part of it: every number repeats all names."""
MAX_OPTIONAL_PROPERTIES = 120
"""Of one object: each takes four of the parser's items at the object's beginning (`_ROW_ITEMS`), and what exceeds those
would show only after the first tokens."""
MAX_REMAINDERS = 10_000
"""Of `multipleOf`: 10,007 compiles in 20 ms, 999,983 in seven seconds."""
MAX_CACHED_GRAMMARS = 64
MAX_CACHED_BYTES = 8 << 20
"""Of the texts of cached grammars; what is compiled from them is some ten times as large."""
MAX_ERROR_CHARACTERS = 200

_STEP_FUEL = 100_000
"""Of the lexer for one token's mask: about 7 ms. Half of the library's own limit: everybody in the step waits."""
_ROW_ITEMS = 500
"""Of the parser at one place of the text. An ambiguous grammar's masks cost its square: up to 20 ms here, 370 ms
at the library's own limit of 2,000. Calls of 400 tools fit."""


def parser_limits() -> LLParserLimits:
    """Non-verbose, since errors reach clients and logs and should not repeat what was sent."""
    return LLParserLimits(max_items_in_row=_ROW_ITEMS, step_lexer_fuel=_STEP_FUEL, verbose_errors=False)
