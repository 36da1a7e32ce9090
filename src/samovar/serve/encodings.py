"""Compressed request bodies: Content-Encoding to plain bytes, a bounded piece at a time.

A few kilobytes may expand to gigabytes, so nothing here ever makes more than one piece ahead of whoever counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import sys
from typing import Protocol
import zlib

from samovar.base.errors import BodyTooLarge, RequestError, UnsupportedEncoding
from samovar.base.shown import shown

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PIECE_BYTES = 256 << 10
MOST_CODINGS = 2
ZSTD_WINDOW_LOG = 23
"""8 MiB: what RFC 9659 lets a sender use, and what a decoder may have to hold."""
_GZIP_BITS, _ZLIB_BITS, _RAW_BITS = 31, 15, -15
"""What zlib calls the three wrappings of a deflate stream."""


class Decompressor(Protocol):
    """As in `compression.zstd`: one frame, at most `max_length` bytes of it at a time."""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...


class Expander:
    """Undoes one coding. `push` everything in order, then `finish`; both raise RequestError for other data."""

    def __init__(self, name: str, start: Callable[[bytes], Decompressor], *, several: bool) -> None:
        """`start` makes a decompressor for a frame, given the first bytes of it; `several`: frames may follow each
        other."""
        self._name = name
        self._start = start
        self._several = several
        self._frame: Decompressor | None = None
        self._held = b""
        """The first byte, until there are the two that `start` may look at."""
        self._ended = False

    def push(self, data: bytes) -> Iterator[bytes]:
        """What `data` adds, in pieces of at most PIECE_BYTES; the data counts as taken once the iterator has ended."""
        data = self._held + data
        self._held = b""
        while data or (self._frame is not None and not self._frame.needs_input):
            if self._frame is None:
                if len(data) < 2:
                    self._held = data
                    return
                if self._ended and not self._several:
                    raise self._corrupt("there is more after its end")
                self._frame = self._start(data[:2])
            try:
                piece = self._frame.decompress(data, PIECE_BYTES)
            except (zlib.error, zstd.ZstdError) as error:
                raise self._corrupt(str(error)) from None
            data = b""
            if self._frame.eof:
                data, self._frame, self._ended = self._frame.unused_data, None, True
            if piece:
                yield piece

    def finish(self) -> None:
        if self._frame is not None or self._held or not self._ended:
            raise self._corrupt("it ends too early")

    def _corrupt(self, why: str) -> RequestError:
        return RequestError(f"The body is not valid {self._name} data (Content-Encoding): {why}.")


class Chain:
    """Undoes the codings of one body, in the order of `expanders`."""

    def __init__(self, expanders: Sequence[Expander], max_bytes: int) -> None:
        """`max_bytes`: of what lies between two codings. It is not kept, but it takes time. What comes out in the end
        is the caller's to count."""
        self._expanders = expanders
        self._max_bytes = max_bytes
        self._between_bytes = 0

    @property
    def is_single(self) -> bool:
        return len(self._expanders) == 1

    def push(self, data: bytes) -> Iterator[bytes]:
        return self._through(data, 0)

    def finish(self) -> None:
        for expander in self._expanders:
            expander.finish()

    def _through(self, data: bytes, at: int) -> Iterator[bytes]:
        if at == len(self._expanders):
            yield data
            return
        for piece in self._expanders[at].push(data):
            if at + 1 < len(self._expanders):
                self._between_bytes += len(piece)
                if self._between_bytes > self._max_bytes:
                    raise BodyTooLarge(f"The request body may have at most {self._max_bytes} bytes, expanded once too.")
            yield from self._through(piece, at + 1)


def chain_for(content_encodings: Sequence[str], max_bytes: int) -> Chain | None:
    """From the values of Content-Encoding headers; None when the body is as it is. Raises UnsupportedEncoding."""
    names = [name.strip().lower() for value in content_encodings for name in value.split(",")]
    codings = [name for name in names if name not in ("", "identity")]
    for name in codings:
        if name not in _EXPANDERS:
            known = ", ".join(("identity", *_EXPANDERS))
            raise UnsupportedEncoding(f"Content-Encoding: {shown(name)} is not one of {known}.")
    if len(codings) > MOST_CODINGS:
        raise UnsupportedEncoding(f"Content-Encoding: at most {MOST_CODINGS} codings; got {len(codings)}.")
    # Listed in the order they were applied: the last one is undone first.
    return Chain([_EXPANDERS[name](name) for name in reversed(codings)], max_bytes) if codings else None


class _Zlib:
    """zlib's decompressor as a `Decompressor`."""

    def __init__(self, bits: int) -> None:
        self._inner = zlib.decompressobj(bits)
        self._full = False

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        piece = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        self._full = len(piece) == max_length
        return piece

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        """A piece of full length may have left more inside than its unread input shows."""
        return not self._full and not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data


def _deflate(start: bytes) -> Decompressor:
    """What HTTP calls deflate has zlib's header; some clients send it without."""
    has_header = start[0] & 0x0F == 8 and int.from_bytes(start, "big") % 31 == 0
    return _Zlib(_ZLIB_BITS if has_header else _RAW_BITS)


def _zstd(start: bytes) -> Decompressor:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG})


def _gzip(start: bytes) -> Decompressor:
    return _Zlib(_GZIP_BITS)


_EXPANDERS: dict[str, Callable[[str], Expander]] = {
    "zstd": lambda name: Expander(name, _zstd, several=True),
    "gzip": lambda name: Expander(name, _gzip, several=True),
    "x-gzip": lambda name: Expander(name, _gzip, several=True),
    "deflate": lambda name: Expander(name, _deflate, several=False),
}
