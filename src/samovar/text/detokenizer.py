"""Ids to text, piece by piece: what is emitted is final, and the pieces together are `Tokenizer.decode` of all ids.

Works on the bytes of each token and an incremental UTF-8 decoder, so a token costs the same however long the text
before it is. The last character is held back while it is incomplete (at most 3 bytes).
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterable

from samovar.text.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """One per output text."""

    def __init__(self, tokenizer: Tokenizer, skipped: Collection[int] | None = None, at_start: bool = True) -> None:
        """`skipped`: ids that give no text; None for every special token. `at_start` as in `Tokenizer.decode`: False
        when the ids continue a text that is already there."""
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skipped is None else skipped
        self._strip = at_start and tokenizer.codec.strips_leading_space
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Iterable[int]) -> str:
        """Text that became final with these ids; "" while a character is incomplete."""
        token_bytes, skipped = self._tokenizer.token_bytes, self._skipped
        data = b"".join([token_bytes(token_id) for token_id in ids if token_id not in skipped])
        if self._strip and data:
            self._strip = False
            data = data.removeprefix(b" ")
        return self._decoder.decode(data)

    def flush(self) -> str:
        """What is still held: an incomplete character, as U+FFFD. Afterwards the detokenizer is as good as new, except
        that it stands in the middle of a text."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
