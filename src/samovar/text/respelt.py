"""An encoder that knows added tokens under other spellings than their own.

A backend finds an added token wherever its text stands. To say which places are meant, the token is given a spelling
that stands only there; its own letters are text like any other then. Normalising, cutting and merging are the very ones
of the backend, and so is the white space that a token takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tokenizers
from tokenizers import AddedToken

from samovar.text.surrogates import replace_surrogates

Encode = Callable[[str], list[int]]


def respelt(backend: tokenizers.Tokenizer, spellings: Mapping[int, str]) -> Encode:
    """Encodes as `backend` does, but for the added tokens in `spellings` (by id): their ids stand for those spellings,
    which must occur nowhere else, and begin and end like the tokens' own. They are found wherever they stand, so no
    spelling is left over, also of tokens that `backend` finds only as words of their own or after normalising. Shares
    the vocabulary with `backend`. May be called from several threads."""
    twin = tokenizers.Tokenizer(backend.model)
    if backend.normalizer is not None:
        twin.normalizer = backend.normalizer
    if backend.pre_tokenizer is not None:
        twin.pre_tokenizer = backend.pre_tokenizer
    added = {id: token for id, token in backend.get_added_tokens_decoder().items() if token.content}
    spelt = {id: spellings.get(id, token.content) for id, token in added.items()}
    twin.add_tokens([_other(token, spelt[id]) if id in spellings else token for id, token in sorted(added.items())])
    # The twin numbers what its vocabulary does not have as it likes.
    own = {twin.token_to_id(text): id for id, text in spelt.items()}

    def encode(text: str) -> list[int]:
        (found,) = twin.encode_batch_fast([replace_surrogates(text)], add_special_tokens=False)
        return [own.get(id, id) for id in found.ids]

    return encode


def _other(token: AddedToken, text: str) -> AddedToken:
    return AddedToken(text, lstrip=token.lstrip, rstrip=token.rstrip, normalized=False, special=token.special)
