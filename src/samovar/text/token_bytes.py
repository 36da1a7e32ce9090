"""From a vocabulary's spelling of a token to the bytes it stands for.

Two spellings exist. Byte-level BPE (GPT-2) writes each byte as one printable character; SentencePiece writes a space
as U+2581 and a byte without a piece of its own as `<0xNN>`. Text is the concatenation of bytes, decoded as UTF-8 with
U+FFFD for what is not UTF-8: the only rule under which text can be produced token by token.
"""

from __future__ import annotations

from dataclasses import dataclass
import re
from typing import Any, Literal

from samovar.base.errors import UnsupportedFeature

SPACE_MARK = "▁"
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the other 68 follow from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    hidden = [byte for byte in range(256) if chr(byte) not in alphabet]
    alphabet.update({chr(0x100 + rank): byte for rank, byte in enumerate(hidden)})
    return alphabet


BYTE_ALPHABET = _byte_alphabet()


@dataclass(frozen=True, slots=True)
class TokenCodec:
    """How one vocabulary spells bytes."""

    spelling: Literal["byte_level", "sentencepiece"]
    byte_fallback: bool = False
    """`<0xNN>` stands for a byte (SentencePiece only)."""
    strips_leading_space: bool = False
    """Encoding puts a space before the text, so decoding from the start takes one away."""

    def bytes_of(self, piece: str) -> bytes:
        """Bytes of a piece of the model's vocabulary. Added tokens are spelled literally and do not come here."""
        if self.spelling == "byte_level":
            try:
                return bytes([BYTE_ALPHABET[char] for char in piece])
            except KeyError:
                # A piece outside the alphabet was put into the vocabulary as plain text.
                return piece.encode("utf-8")
        if self.byte_fallback and (byte := _BYTE_PIECE.fullmatch(piece)):
            return bytes([int(byte[1], 16)])
        return piece.replace(SPACE_MARK, " ").encode("utf-8")


def codec_of(decoder: dict[str, Any] | None) -> TokenCodec:
    """The codec that a `decoder` section of a tokenizer.json describes.

    Raises UnsupportedFeature for decoders that do not work on bytes (WordPiece, CTC, ...).
    """
    steps = _flatten(decoder)
    names = [step.get("type") for step in steps]
    if "ByteLevel" in names:
        return TokenCodec("byte_level")
    known = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}
    if not steps or not set(names) <= known:
        odd = next((name for name in names if name not in known), None)
        raise UnsupportedFeature(
            f"tokenizer.json: decoder {odd!r} is not supported (ByteLevel or SentencePiece-style is)"
        )
    leading = any(
        (step["type"] == "Strip" and step.get("content") == " " and step.get("start", 0) > 0)
        or (step["type"] == "Metaspace" and step.get("prepend_scheme", "always") != "never")
        for step in steps
    )
    return TokenCodec("sentencepiece", byte_fallback="ByteFallback" in names, strips_leading_space=leading)


def _flatten(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder.get("type") == "Sequence":
        return [leaf for step in decoder.get("decoders", []) for leaf in _flatten(step)]
    return [decoder]
