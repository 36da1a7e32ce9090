"""How few tokens a text can have, told from its length alone: far cheaper than encoding it.

No token stands for more bytes than the longest one of the vocabulary, so B bytes need at least B / longest tokens. That
holds only while nothing makes the text shorter before it is cut into tokens: a tokenizer with a step that is not known
to keep every byte gets no bound (0), which is always true.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
import json
from typing import Any

import tokenizers
from tokenizers import models

from samovar.text.token_bytes import BYTE_ALPHABET, TokenCodec

NFC_SHRINKS = 4
"""Normal form C takes less than this factor from a text's bytes: U+1FBE U+0308 U+0301, 7 bytes, become U+0390, 2 bytes;
no other sequence loses more. It leaves ASCII as it is."""
_KEEPING_CUTS = frozenset({"ByteLevel", "Split", "Digits", "Metaspace", "Punctuation"})


@dataclass(frozen=True, slots=True)
class TokenBound:
    longest_bytes: int
    """Of a text, as the longest token stands for; 0: no bound is known."""
    unspelled: bytes = b""
    """Bytes that no token spells: encoding drops them."""
    composes: bool = False
    """Text is brought to normal form C first."""
    greedy: tuple[str, ...] = ()
    """Added tokens that also take the white space beside them, however much."""

    def at_least(self, text: str) -> int:
        """Never more than the number of tokens of `text` (which has no lone surrogates)."""
        if self.longest_bytes == 0 or any(token in text for token in self.greedy):
            return 0
        data = text.encode("utf-8")
        longest = self.longest_bytes
        if self.composes and not text.isascii():
            if self.unspelled:
                return 0
            longest *= NFC_SHRINKS
        return -(-len(data.translate(None, self.unspelled)) // longest)


NO_BOUND = TokenBound(0)


def bound_of(backend: tokenizers.Tokenizer, codec: TokenCodec) -> TokenBound:
    """For byte pair encoding over bytes, or over characters with bytes to fall back on; NO_BOUND for anything else."""
    shortening = _steps(backend.normalizer, "normalizers")
    cuts = list(_steps(backend.pre_tokenizer, "pretokenizers"))
    normal_forms = [step for step in shortening if not _lengthens(step)]
    added = backend.get_added_tokens_decoder().values()
    greedy = [token for token in added if token.lstrip or token.rstrip]
    if (
        not isinstance(backend.model, models.BPE)
        or any(step["type"] != "NFC" for step in normal_forms)
        or any(cut["type"] not in _KEEPING_CUTS or cut.get("behavior") == "Removed" for cut in cuts)
        or (normal_forms and any(token.normalized for token in greedy))
    ):
        return NO_BOUND
    unspelled = _unspelled(backend, codec, has_bytes=any(cut["type"] == "ByteLevel" for cut in cuts))
    if unspelled is None:
        return NO_BOUND
    return TokenBound(
        longest_bytes=_longest(backend, codec),
        unspelled=unspelled,
        composes=bool(normal_forms),
        greedy=tuple(token.content for token in greedy),
    )


def _unspelled(backend: tokenizers.Tokenizer, codec: TokenCodec, *, has_bytes: bool) -> bytes | None:
    """Bytes without a token; None when it depends on more than the byte."""
    if codec.spelling == "byte_level":
        missing = bytes(byte for char, byte in BYTE_ALPHABET.items() if backend.token_to_id(char) is None)
        # 0xC0, 0xC1 and what lies above 0xF4 occur in no UTF-8, and vocabularies leave them out.
        return bytes(byte for byte in missing if byte not in (0xC0, 0xC1) and byte <= 0xF4) if has_bytes else None
    complete = backend.model.byte_fallback and all(backend.token_to_id(f"<0x{b:02X}>") is not None for b in range(256))
    return b"" if complete else None


def _longest(backend: tokenizers.Tokenizer, codec: TokenCodec) -> int:
    """Byte-level vocabularies spell a byte as one character. In the others the mark for a space may also stand for
    itself, so it counts with all its bytes."""
    added = [len(token.content.encode("utf-8")) for token in backend.get_added_tokens_decoder().values()]
    pieces = backend.get_vocab(with_added_tokens=False)
    if codec.spelling == "byte_level":
        own = max(map(len, pieces), default=0)
    else:
        own = max((len(piece.encode("utf-8")) for piece in pieces), default=0)
    return max(own, *added, 0)


def _lengthens(step: dict[str, Any]) -> bool:
    """Whether a normalizer never takes a byte away."""
    if step["type"] == "Prepend":
        return True
    old = step.get("pattern", {}).get("String") if step["type"] == "Replace" else None
    return old is not None and len(step["content"].encode("utf-8")) >= len(old.encode("utf-8"))


def _steps(component: Any, inner: str) -> Iterator[dict[str, Any]]:
    """The innermost steps of a normalizer or a pre-tokenizer, as tokenizer.json writes them."""
    todo: list[dict[str, Any]] = [] if component is None else [json.loads(component.__getstate__())]
    while todo:
        step = todo.pop(0)
        if step["type"] == "Sequence":
            todo[:0] = step[inner]
        else:
            yield step
