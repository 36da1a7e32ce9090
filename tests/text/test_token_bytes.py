"""Bytes of single pieces, and which spelling a decoder section means."""

from __future__ import annotations

import pytest
from tokenizers import pre_tokenizers

from samovar.base.errors import UnsupportedFeature
from samovar.text.token_bytes import BYTE_ALPHABET, TokenCodec, codec_of


def test_the_byte_alphabet_is_the_library_s() -> None:
    assert set(BYTE_ALPHABET) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(BYTE_ALPHABET.values()) == list(range(256))
    for text in ("é", " ", "\n", "\xa0\xad\x7f", "👍"):
        ((spelled, _),) = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
        assert bytes(BYTE_ALPHABET[char] for char in spelled) == text.encode()


def test_byte_level_pieces() -> None:
    codec = TokenCodec("byte_level")
    assert codec.bytes_of("Ġhi") == b" hi"
    assert codec.bytes_of("Ã") == b"\xc3"
    assert codec.bytes_of("<｜end▁｜>") == "<｜end▁｜>".encode()
    assert codec.bytes_of("<0x0A>") == b"<0x0A>"


def test_sentencepiece_pieces() -> None:
    codec = TokenCodec("sentencepiece", byte_fallback=True)
    assert codec.bytes_of("▁hi▁▁") == b" hi  "
    assert codec.bytes_of("<0x0A>") == b"\n"
    assert codec.bytes_of("<0xe9>") == b"\xe9"
    assert codec.bytes_of("<0x0A>x") == b"<0x0A>x"
    assert TokenCodec("sentencepiece").bytes_of("<0x0A>") == b"<0x0A>"


@pytest.mark.parametrize(
    ("decoder", "codec"),
    [
        ({"type": "ByteLevel"}, TokenCodec("byte_level")),
        ({"type": "Sequence", "decoders": [{"type": "ByteLevel"}]}, TokenCodec("byte_level")),
        (
            {
                "type": "Sequence",
                "decoders": [
                    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
                ],
            },
            TokenCodec("sentencepiece", byte_fallback=True, strips_leading_space=True),
        ),
        (
            {"type": "Sequence", "decoders": [{"type": "Replace"}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
            TokenCodec("sentencepiece", byte_fallback=True),
        ),
        ({"type": "Metaspace", "prepend_scheme": "first"}, TokenCodec("sentencepiece", strips_leading_space=True)),
        ({"type": "Metaspace", "prepend_scheme": "never"}, TokenCodec("sentencepiece")),
    ],
)
def test_the_codec_follows_from_the_decoder(decoder: dict[str, object], codec: TokenCodec) -> None:
    assert codec_of(decoder) == codec


@pytest.mark.parametrize("decoder", [None, {"type": "WordPiece"}, {"type": "Sequence", "decoders": [{"type": "CTC"}]}])
def test_other_decoders_are_refused_by_name(decoder: dict[str, object] | None) -> None:
    with pytest.raises(UnsupportedFeature, match="None" if decoder is None else "WordPiece|CTC"):
        codec_of(decoder)
