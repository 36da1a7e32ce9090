"""Before a model is served: does its chat template keep the prefix of a conversation that goes on?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
import logging

from samovar.text.checkpoint import TextParts
from samovar.text.turns.reader import TurnReader
from samovar.text.turns.stability import find_break
from samovar.text.turns.volatile import DEFAULT_RULES, VolatileLines

log = logging.getLogger("samovar")


def volatile_rules(given: Sequence[str] | None) -> tuple[str, ...]:
    """What --volatile-lines says; None: it was not given."""
    if given is None:
        return DEFAULT_RULES
    return () if list(given) == ["off"] else tuple(given)


def warn_of_break(text: TextParts, rules: Sequence[str]) -> None:
    """One line in the log where the prefix breaks. Takes some 50 ms."""
    if text.template is not None:
        make = partial(TurnReader, text.tokenizer, text.template, volatile=VolatileLines(rules))
        found = find_break(text.tokenizer, make)
        if found is not None:
            log.warning("%s", found)
