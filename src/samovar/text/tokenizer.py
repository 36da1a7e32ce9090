"""The tokenizer: text to ids, ids to bytes.

Wraps `tokenizers.Tokenizer` for encoding. Decoding is done here, by bytes (see `token_bytes`), so that a whole and a
piecewise decoding agree. Immutable once built; safe to use from several threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
import json
import threading

import tokenizers
from tokenizers.processors import TemplateProcessing

from samovar.text.respelt import Encode, respelt
from samovar.text.surrogates import replace_surrogates
from samovar.text.token_bound import TokenBound, bound_of
from samovar.text.token_bytes import TokenCodec, codec_of


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """What a checkpoint says of its special tokens."""

    named: Mapping[str, str] = field(default_factory=dict)
    """By the names chat templates use: "bos_token", "eos_token", "pad_token", "unk_token", ..."""
    eos_ids: tuple[int, ...] = ()
    """Every token that ends an answer, the checkpoint's main one first."""
    prefix_ids: tuple[int, ...] = ()
    """What `add_special_tokens` puts before a text (BOS, mostly)."""
    suffix_ids: tuple[int, ...] = ()


class Tokenizer:
    """`backend` is owned by the tokenizer from here on: its truncation and padding are switched off."""

    def __init__(self, backend: tokenizers.Tokenizer, special: SpecialTokens) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._literal_backend: tokenizers.Tokenizer | None = None
        self._lock = threading.Lock()
        self._special = special
        self._codec = codec_of(None if backend.decoder is None else json.loads(backend.decoder.__getstate__()))
        added = backend.get_added_tokens_decoder()
        self._added: Mapping[int, tokenizers.AddedToken] = added
        self._added_bytes = {token_id: token.content.encode("utf-8") for token_id, token in added.items()}
        self._special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self._bytes: dict[int, bytes] = dict(self._added_bytes)

    def encode(self, text: str, add_special_tokens: bool = False, allow_special: bool = True) -> list[int]:
        """Token ids of `text`. `allow_special`: whether "<|im_end|>" in the text becomes that special token, as the
        output of a chat template needs, or is spelled out like any other text. Lone surrogates become U+FFFD."""
        backend = self._backend if allow_special else self._literal()
        ids: list[int] = backend.encode_batch_fast([replace_surrogates(text)], add_special_tokens=False)[0].ids
        if add_special_tokens:
            return [*self._special.prefix_ids, *ids, *self._special.suffix_ids]
        return ids

    def at_least(self, text: str) -> int:
        """A number of tokens that `text` has in any case, at a small part of the cost of encoding it; 0 when this
        tokenizer allows no such estimate."""
        return self._bound.at_least(replace_surrogates(text))

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True, at_start: bool = True) -> str:
        """Text of `ids`; what is not UTF-8 becomes U+FFFD. `at_start`: the ids begin a text, so the space that a
        SentencePiece vocabulary puts before it is taken away; False when they continue one."""
        skipped = self._special_ids if skip_special_tokens else frozenset()
        data = b"".join([self.token_bytes(token_id) for token_id in ids if token_id not in skipped])
        if at_start and self._codec.strips_leading_space and data.startswith(b" "):
            data = data[1:]
        return data.decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes a token adds to a text; b"" for an id without a token (padding of the embedding table)."""
        data = self._bytes.get(token_id)
        if data is None:
            piece = self._backend.id_to_token(token_id) if 0 <= token_id < 2**32 else None
            data = b"" if piece is None else self._codec.bytes_of(piece)
            # Unknown ids are not kept: a client may ask for any number.
            if piece is not None:
                self._bytes[token_id] = data
        return data

    def token_text(self, token_id: int) -> str:
        """A token on its own, as log probabilities show it: half a character is U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def to_json(self) -> str:
        """The text of a tokenizer.json that encodes as this one does, special tokens around a text included."""
        twin = tokenizers.Tokenizer.from_str(self._backend.to_str())
        prefix, suffix = self._special.prefix_ids, self._special.suffix_ids
        if post_processor_ids(twin) != (prefix, suffix):
            names = {token_id: twin.id_to_token(token_id) for token_id in (*prefix, *suffix)}
            single = [*(names[i] for i in prefix), "$A", *(names[i] for i in suffix)]
            twin.post_processor = TemplateProcessing(
                single=single, special_tokens=[(name, token_id) for token_id, name in names.items()]
            )
        text: str = twin.to_str(pretty=True)
        return text

    @cached_property
    def vocab_size(self) -> int:
        """Highest id + 1. A model's output may be wider (padding)."""
        return 1 + max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1)

    @cached_property
    def _bound(self) -> TokenBound:
        return bound_of(self._backend, self._codec)

    @property
    def codec(self) -> TokenCodec:
        return self._codec

    @property
    def special_tokens(self) -> Mapping[str, str]:
        return self._special.named

    @property
    def special_ids(self) -> frozenset[int]:
        return self._special_ids

    @property
    def added_tokens(self) -> Mapping[int, tokenizers.AddedToken]:
        """Tokens that are matched whole in any text, special or not, by id."""
        return self._added

    @property
    def special_affixes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What `encode` puts before and after a text with `add_special_tokens`."""
        return self._special.prefix_ids, self._special.suffix_ids

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Every token that ends an answer, the main one first."""
        return self._special.eos_ids

    def respelt(self, spellings: Mapping[int, str]) -> Encode:
        """An encoder like this one that finds the added tokens in `spellings`, by id, under these spellings only: see
        `respelt.respelt`."""
        return respelt(self._backend, spellings)

    def _literal(self) -> tokenizers.Tokenizer:
        """A twin that spells special tokens out. The backend keeps this as a mutable switch, which threads that share
        one tokenizer could not flip; the twin is made when first asked for."""
        with self._lock:
            if self._literal_backend is None:
                twin = tokenizers.Tokenizer.from_str(self._backend.to_str())
                twin.encode_special_tokens = True
                self._literal_backend = twin
            return self._literal_backend


def post_processor_ids(backend: tokenizers.Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids a backend's own post-processor puts before and after a text."""
    plain: Sequence[int] = backend.encode("a", add_special_tokens=False).ids
    full: Sequence[int] = backend.encode("a", add_special_tokens=True).ids
    for at in range(len(full) - len(plain) + 1):
        if list(full[at : at + len(plain)]) == list(plain):
            return tuple(full[:at]), tuple(full[at + len(plain) :])
    return (), ()
