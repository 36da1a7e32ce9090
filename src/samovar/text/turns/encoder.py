"""Texts to packed ids and block keys, at the cost of what is new in them.

Texts are marked ones (`controls`). Ids are those of the full path (`Tokenizer.encode`, or `MarkedEncoder` where marks
are), except where a model generated the text in this very place: there they are the ids that it generated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from samovar.base.keys import KEY_BYTES, TOKEN_BYTES, extend_keys, join_keys, pack_tokens
from samovar.text.marks import MARK, unmarked
from samovar.text.tokenizer import Tokenizer
from samovar.text.turns.controls import Controls
from samovar.text.turns.marked_encoder import MarkedEncoder
from samovar.text.turns.memory import Chain, Found, New, Node, PartMemory, last_key
from samovar.text.turns.splitting import Splitting, splitting_of

TooLong = Callable[[int], None]
"""Is told a number of tokens that a text has at least, before it is encoded; raises when that is too many."""


@dataclass(frozen=True, slots=True)
class Place:
    """The end of a text, where its last part is still open: what follows may lengthen it."""

    chain: Chain
    node: Node | None
    """What the open part follows; None: the chain's beginning."""
    text: str
    """Of the open part."""


@dataclass(frozen=True, slots=True)
class Encoded:
    packed: bytes
    """Token ids, little-endian int32, the chain's prefix included."""
    keys: bytes
    """Of the full blocks, 16 bytes each."""
    end: Place | None
    """None when it is not remembered."""


class TurnEncoder:
    """Owns its memory. Safe to use from several threads."""

    def __init__(
        self, tokenizer: Tokenizer, memory: PartMemory | None = None, controls: Controls | None = None
    ) -> None:
        """`controls`: None for the special tokens alone."""
        self._tokenizer = tokenizer
        self._controls = controls or Controls(tokenizer)
        self._marked = MarkedEncoder(tokenizer, self._controls.marked_ids)
        self._splitting = splitting_of(tokenizer)
        self.memory = memory or PartMemory()

    @property
    def splitting(self) -> Splitting:
        return self._splitting

    def encode(self, text: str, chain: Chain, too_long: TooLong | None = None, *, remember: bool = True) -> Encoded:
        """A whole text. `remember`: False leaves the memory as it is. Raises only what `too_long` does."""
        parts = self._splitting.split(text)
        found = self.memory.find(chain, parts[:-1], touch=remember)
        return self._complete(Place(chain, None, ""), found, parts, too_long, remember)

    def encode_behind(
        self, place: Place, text: str, too_long: TooLong | None = None, *, remember: bool = True
    ) -> Encoded | None:
        """The text that ends at `place`, lengthened by `text`; None when the place was forgotten."""
        parts = self._parts_at(place, text)
        found = self.memory.find(place.chain, parts[:-1], place.node, touch=remember)
        if place.node is not None and found.node is None:
            return None
        return self._complete(place, found, parts, too_long, remember)

    def place_in(self, encoded: Encoded, back: int) -> Place | None:
        """The place `back` characters before the end of an encoded text, such that whatever follows it, what lies
        before its open part stays as it is; None when it is not remembered."""
        if encoded.end is None:
            return None
        way = self.memory.step_back(encoded.end.node, encoded.end.text, back + self._splitting.longest)
        if way is None:
            return None
        node, text = way
        return Place(encoded.end.chain, node, text[: len(text) - back]) if len(text) >= back else None

    def learn(self, place: Place, token_ids: Sequence[int], eos_ids: Iterable[int]) -> str | None:
        """Remembers what was generated behind a prompt that ends at `place`, and returns its text, control tokens
        among it, without the token that ended it. None for an output that is not remembered: one with control tokens
        that no client gets to see, and one whose text, split again, would fall into other parts than the ids do (a
        model can spell an added token letter by letter)."""
        ids = list(token_ids)
        if ids and ids[-1] in set(eos_ids):
            ids.pop()
        if not self._controls.may_return(ids):
            return None
        runs = _runs(ids, self._splitting.opening)
        texts = [self._controls.spelt(run) for run in runs]
        whole = "".join(texts)
        if self._parts_at(place, whole) != [place.text + texts[0], *texts[1:]]:
            return None
        self._remember(place, runs, texts)
        return whole

    def shorten(self, token_ids: Sequence[int], text: str) -> list[int] | None:
        """The first of `token_ids`, as many as show `text`, but for blanks around it; None when no number of them
        does."""
        whole = text.encode("utf-8", "replace")
        wanted = whole.strip()
        shown = bytearray()
        found: int | None = None
        for taken in range(len(token_ids) + 1):
            if len(shown) >= len(wanted) and shown.strip() == wanted:
                found = taken
            if taken == len(token_ids) or len(shown) > len(whole):
                break
            if token_ids[taken] not in self._tokenizer.special_ids:
                shown += self._tokenizer.token_bytes(token_ids[taken])
        return None if found is None else list(token_ids[:found])

    def _parts_at(self, place: Place, text: str) -> list[str]:
        parts = self._splitting.split(place.text + text)
        # An open part that is not the chain's first begins with a token, before which there is nothing.
        return parts if place.node is None else parts[1:]

    def _complete(
        self, place: Place, found: Found, parts: Sequence[str], too_long: TooLong | None, remember: bool
    ) -> Encoded:
        chain, last = place.chain, parts[-1]
        rest = parts[found.depth : -1]
        if too_long is not None:
            self._check(found, [*rest, last], too_long)
        new = [self._encode(part) if ids is None else ids for part, ids in zip(rest, found.rest, strict=True)]
        packed = b"".join([*found.ids, *new, self._encode(last)])
        keys = b"".join(found.keys)
        keys += _next_keys(chain, keys, packed)
        if not remember:
            return Encoded(packed, keys, None)
        if new:
            begin = sum(map(len, found.ids))
            node = self.memory.add(chain, found.node, _with_keys(rest, new, begin, keys, chain.block_tokens))
            return Encoded(packed, keys, None if node is None else Place(chain, node, last))
        return Encoded(packed, keys, Place(chain, found.node if found.depth else place.node, last))

    def _remember(self, place: Place, runs: list[list[int]], texts: list[str]) -> None:
        chain = place.chain
        found = self.memory.find(chain, (), place.node)
        if (place.node is not None and found.node is None) or self._splitting.pattern is None:
            return
        ids = [pack_tokens(run) for run in runs]
        ids[0] = self._encode(place.text) + ids[0]
        texts = [place.text + texts[0], *texts[1:]]
        packed = b"".join([*found.ids, *ids])
        keys = b"".join(found.keys)
        keys += _next_keys(chain, keys, packed)
        begin = sum(map(len, found.ids))
        news = _with_keys(texts, ids, begin, keys, chain.block_tokens, encoded=False)
        self.memory.add(chain, place.node, news)

    def _encode(self, part: str) -> bytes:
        if not part:
            return b""
        return pack_tokens((self._marked if MARK in part else self._tokenizer).encode(part))

    def _check(self, found: Found, rest: Sequence[str], too_long: TooLong) -> None:
        tokens = sum(map(len, found.ids)) // TOKEN_BYTES
        known = iter([*found.rest, None])
        for part in rest:
            ids = next(known)
            tokens += self._tokenizer.at_least(unmarked(part)) if ids is None else len(ids) // TOKEN_BYTES
        too_long(tokens)


def with_suffix(encoded: Encoded, suffix: bytes, chain: Chain) -> Encoded:
    """With more packed ids at the end, behind which nothing is remembered."""
    packed = encoded.packed + suffix
    return Encoded(packed, encoded.keys + _next_keys(chain, encoded.keys, packed), None)


def _next_keys(chain: Chain, keys: bytes, packed: bytes) -> bytes:
    """Keys of the full blocks of `packed` behind those that have one."""
    begin = len(keys) // KEY_BYTES * chain.block_tokens * TOKEN_BYTES
    return join_keys(extend_keys(last_key(chain, keys), packed[begin:], chain.block_tokens))


def _with_keys(
    texts: Sequence[str], ids: Sequence[bytes], begin: int, keys: bytes, block_tokens: int, *, encoded: bool = True
) -> list[New]:
    """Each part with the keys of the blocks that end in it. `begin`: bytes of ids before the first."""
    step = block_tokens * TOKEN_BYTES
    news = []
    for text, packed in zip(texts, ids, strict=True):
        end = begin + len(packed)
        news.append(New(text, packed, keys[begin // step * KEY_BYTES : end // step * KEY_BYTES], encoded))
        begin = end
    return news


def _runs(ids: Sequence[int], opening: frozenset[int]) -> list[list[int]]:
    """`ids` cut before every token that opens a part; the first run may be empty."""
    runs: list[list[int]] = [[]]
    for token in ids:
        if token in opening:
            runs.append([])
        runs[-1].append(token)
    return runs
