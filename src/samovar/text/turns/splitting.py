"""Where a text may be cut so that its parts, encoded apart, give the very ids of the whole: before added tokens.

`tokenizers` finds added tokens in the raw text first (leftmost, the longest of those that begin there); what lies
between two of them is normalised, cut into words and merged on its own. So a text falls into independent parts, each
beginning with the added token that opens it. A part is encoded with that token, never without: some vocabularies treat
the very beginning of a text differently.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
import re
from typing import Any

from samovar.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Splitting:
    """Of one tokenizer. Never cuts where it is not certain that nothing changes."""

    pattern: re.Pattern[str] | None
    """Finds every added token that is looked for in raw text; None when no cut is safe."""
    opening: frozenset[int]
    """Added tokens that begin a part."""
    others: frozenset[str]
    """Tokens that `pattern` finds but that begin no part, because they take white space beside them."""
    longest: int
    """Characters of the longest token that `pattern` finds."""

    def split(self, text: str) -> list[str]:
        """`text` in parts, at least one. All but the first begin with an added token; the first is "" when the text
        itself does."""
        if self.pattern is None:
            return [text]
        if self.others:
            cuts = [found.start() for found in self.pattern.finditer(text) if found[0] not in self.others]
        else:
            cuts = [found.start() for found in self.pattern.finditer(text)]
        if not cuts:
            return [text]
        parts = [text[begin:end] for begin, end in pairwise(cuts)]
        return [text[: cuts[0]], *parts, text[cuts[-1] :]]


_WHOLE = Splitting(None, frozenset(), frozenset(), 0)


def splitting_of(tokenizer: Tokenizer) -> Splitting:
    """Tokens that are looked for after normalising stay inside the parts: there they are found as in the whole."""
    raw = {id: token for id, token in tokenizer.added_tokens.items() if token.content and not token.normalized}
    greedy = {token.content for token in raw.values() if token.lstrip or token.rstrip}
    touching_space = any(token.content != token.content.strip() for token in raw.values())
    if any(token.single_word for token in raw.values()) or (greedy and touching_space):
        return _WHOLE
    opening = frozenset(id for id, token in raw.items() if token.content not in greedy)
    if not opening:
        return _WHOLE
    contents = [token.content for token in raw.values()]
    return Splitting(re.compile(any_of(contents)), opening, frozenset(greedy), max(map(len, contents)))


def any_of(words: Iterable[str]) -> str:
    """A regular expression for any of these words, the longest where several begin at a place. Words that begin alike
    share that beginning, so thousands of them cost no more than a few."""
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for character in word:
            node = node.setdefault(character, {})
        node[""] = {}
    return _expression(tree)


def _expression(tree: dict[str, Any]) -> str:
    literal = ""
    while len(tree) == 1 and "" not in tree:
        ((character, tree),) = tree.items()
        literal += re.escape(character)
    branches = [re.escape(character) + _expression(rest) for character, rest in sorted(tree.items()) if character]
    if not branches:
        return literal
    # An optional group tries its branches before nothing: the longer word wins.
    return f"{literal}(?:{'|'.join(branches)}){'?' if '' in tree else ''}"
