"""A tokenizer from GGUF metadata: byte-level BPE ("gpt2") or SentencePiece-style BPE ("llama").

Ids are the positions in `tokenizer.ggml.tokens`. Source of the keys and token types: the GGUF specification,
github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
import enum

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers

from samovar.base.errors import CheckpointError, UnsupportedFeature
from samovar.spec.fields import Fields
from samovar.text.pretokenizers import build_normalizer, build_pre_tokenizer, pre_tokenizer
from samovar.text.token_bytes import SPACE_MARK
from samovar.text.tokenizer import SpecialTokens, Tokenizer

# Control tokens that end an answer by their name: files often name only one of them as EOS.
_END_NAMES = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
)
_ROLE_KEYS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}


class _Kind(enum.IntEnum):
    """`tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    tokens: Sequence[str]
    kinds: Sequence[int]

    def ids(self) -> dict[str, int]:
        """Token to id; the first of equal tokens wins."""
        found: dict[str, int] = {}
        for token_id, token in enumerate(self.tokens):
            found.setdefault(token, token_id)
        return found


def load_gguf(metadata: Fields) -> Tokenizer:
    """Raises CheckpointError when the vocabulary is missing or contradicts itself, and UnsupportedFeature for another
    kind of tokenizer or an unknown pre-tokenizer."""
    if not metadata.has("tokenizer.ggml.model"):
        raise CheckpointError(f"{metadata.where}: holds no tokenizer (no key tokenizer.ggml.model)")
    model = metadata.text("tokenizer.ggml.model")
    vocabulary = _vocabulary(metadata)
    if model == "gpt2":
        backend, adds_bos = _byte_level(metadata, vocabulary)
    elif model == "llama":
        backend, adds_bos = _sentencepiece(metadata, vocabulary), True
    else:
        raise UnsupportedFeature(f"{metadata.where}: tokenizer.ggml.model is {model!r}, supported: 'gpt2', 'llama'")
    _add_tokens(backend, vocabulary)
    return Tokenizer(backend, _special_tokens(metadata, vocabulary, adds_bos))


def gguf_templates(metadata: Fields) -> dict[str, str]:
    """Chat templates by name; the main one is "default"."""
    found: dict[str, str] = {}
    for name in metadata.texts("tokenizer.chat_templates"):
        if metadata.has(f"tokenizer.chat_template.{name}"):
            found[name] = metadata.text(f"tokenizer.chat_template.{name}")
    if metadata.has("tokenizer.chat_template"):
        found["default"] = metadata.text("tokenizer.chat_template")
    return found


def _vocabulary(metadata: Fields) -> _Vocabulary:
    tokens = metadata.texts("tokenizer.ggml.tokens")
    if not tokens:
        raise CheckpointError(f"{metadata.where}: tokenizer.ggml.tokens is missing or empty")
    kinds = metadata.integers("tokenizer.ggml.token_type") or [_Kind.NORMAL] * len(tokens)
    _same_length(metadata.where, "tokenizer.ggml.token_type", len(kinds), len(tokens))
    return _Vocabulary(tokens, kinds)


def _byte_level(metadata: Fields, vocabulary: _Vocabulary) -> tuple[tokenizers.Tokenizer, bool]:
    rule = pre_tokenizer(metadata.text("tokenizer.ggml.pre", "default"))
    merges: list[tuple[str, str]] = []
    for merge in metadata.texts("tokenizer.ggml.merges"):
        left, space, right = merge.partition(" ")
        if not space:
            raise CheckpointError(f"{metadata.where}: tokenizer.ggml.merges holds {merge!r}, expected two tokens")
        merges.append((left, right))
    if not merges:
        raise CheckpointError(f"{metadata.where}: tokenizer.ggml.merges is missing or empty")
    try:
        model = models.BPE(vocab=vocabulary.ids(), merges=merges, ignore_merges=rule.ignore_merges)
    except Exception as error:  # the library raises plain Exception
        raise CheckpointError(f"{metadata.where}: merges do not fit the vocabulary: {error}") from error
    backend = tokenizers.Tokenizer(model)
    normalizer = build_normalizer(rule)
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = build_pre_tokenizer(rule)
    backend.decoder = decoders.ByteLevel()
    return backend, rule.adds_bos


def _sentencepiece(metadata: Fields, vocabulary: _Vocabulary) -> tokenizers.Tokenizer:
    scores = metadata.numbers("tokenizer.ggml.scores")
    if not scores:
        raise CheckpointError(f"{metadata.where}: tokenizer.ggml.scores is missing or empty")
    _same_length(metadata.where, "tokenizer.ggml.scores", len(scores), len(vocabulary.tokens))
    unknown = _token_id(metadata, vocabulary, "tokenizer.ggml.unknown_token_id")
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab=vocabulary.ids(),
            merges=_merges_by_score(vocabulary, scores),
            unk_token=None if unknown is None else vocabulary.tokens[unknown],
            fuse_unk=True,
            byte_fallback=_Kind.BYTE in vocabulary.kinds,
        )
    )
    space_to_mark = normalizers.Replace(" ", SPACE_MARK)
    steps: list[decoders.Decoder] = [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if metadata.flag("tokenizer.ggml.add_space_prefix", True):
        # Before every stretch of text between special tokens, as sentencepiece and llama.cpp do.
        backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE_MARK), space_to_mark])
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        backend.normalizer = space_to_mark
    backend.decoder = decoders.Sequence(steps)
    return backend


def _merges_by_score(vocabulary: _Vocabulary, scores: Sequence[float]) -> list[tuple[str, str]]:
    """SentencePiece joins the neighbours whose union scores best: as a merge list, every way to cut a piece into two
    others, best piece first."""
    mergeable = (_Kind.NORMAL, _Kind.USER_DEFINED, _Kind.UNUSED)
    ids = {token: token_id for token, token_id in vocabulary.ids().items() if vocabulary.kinds[token_id] in mergeable}
    ranked: list[tuple[float, int, int, str, str]] = []
    for token, token_id in ids.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                ranked.append((-scores[token_id], ids[left], ids[right], left, right))
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]


def _add_tokens(backend: tokenizers.Tokenizer, vocabulary: _Vocabulary) -> None:
    """Control and unknown tokens become special; user-defined ones are matched whole in any text, and shown."""
    added: list[AddedToken] = []
    for token, kind in zip(vocabulary.tokens, vocabulary.kinds, strict=True):
        if token and kind in (_Kind.CONTROL, _Kind.UNKNOWN, _Kind.USER_DEFINED):
            added.append(AddedToken(token, special=kind != _Kind.USER_DEFINED, normalized=False))
    backend.add_tokens(added)


def _special_tokens(metadata: Fields, vocabulary: _Vocabulary, adds_bos: bool) -> SpecialTokens:
    named: dict[str, str] = {}
    by_role: dict[str, int] = {}
    for role, key in _ROLE_KEYS.items():
        token_id = _token_id(metadata, vocabulary, key)
        if token_id is not None:
            named[role] = vocabulary.tokens[token_id]
            by_role[role] = token_id
    eos = by_role.get("eos_token")
    ends = [] if eos is None else [eos]
    for key in ("tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"):
        token_id = _token_id(metadata, vocabulary, key)
        if token_id is not None:
            ends.append(token_id)
    ends.extend(_ends_by_name(vocabulary))

    def wanted(flag: str, role: str, default: bool) -> tuple[int, ...]:
        asked = metadata.flag(f"tokenizer.ggml.{flag}", default)
        return (by_role[role],) if role in by_role and asked else ()

    return SpecialTokens(
        named=named,
        eos_ids=tuple(dict.fromkeys(ends)),
        prefix_ids=wanted("add_bos_token", "bos_token", adds_bos),
        suffix_ids=wanted("add_eos_token", "eos_token", False),
    )


def _ends_by_name(vocabulary: _Vocabulary) -> list[int]:
    ids = vocabulary.ids()
    names = list(_END_NAMES)
    if "<|return|>" in ids:
        # OpenAI's harmony format ends every message with <|end|>, an answer with <|return|> or <|call|>.
        names.remove("<|end|>")
    return [ids[name] for name in names if name in ids and vocabulary.kinds[ids[name]] == _Kind.CONTROL]


def _token_id(metadata: Fields, vocabulary: _Vocabulary, key: str) -> int | None:
    """An id that names a token, None when the key is absent."""
    if not metadata.has(key):
        return None
    token_id = metadata.integer(key, minimum=0)
    if token_id >= len(vocabulary.tokens):
        raise CheckpointError(
            f"{metadata.where}: {key} is {token_id}, the vocabulary has {len(vocabulary.tokens)} tokens"
        )
    return token_id


def _same_length(path: str, key: str, found: int, expected: int) -> None:
    if found != expected:
        raise CheckpointError(f"{path}: {key} has {found} entries, tokenizer.ggml.tokens {expected}")
