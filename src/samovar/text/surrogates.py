"""Lone surrogates: code points that a JSON escape can smuggle into a `str` and that UTF-8 cannot carry.

They arrive from clients that cut a string between the two halves of an emoji. A door may refuse them; below it, text
is made encodable instead, so that no input can crash a tokenizer or a hash.
"""

from __future__ import annotations

import re

_LONE = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")


def find_surrogate(text: str) -> int | None:
    """Position of the first lone surrogate. A high one followed by a low one is a pair, not lone."""
    if text.isascii():
        return None
    found = _LONE.search(text)
    return None if found is None else found.start()


def replace_surrogates(text: str) -> str:
    """`text` with each lone surrogate as U+FFFD and each pair as the character it stands for."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
