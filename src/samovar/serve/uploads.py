"""Request bodies on their way in: bounded in size, in time, and in what all of them take together.

A compressed body is expanded as it comes, so that its limit, and the memory it takes, are those of what it expands to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
import time

from starlette.requests import Request
from starlette.types import Message

from samovar.base.errors import BodyTooLarge, Saturated, UploadTimeout
from samovar.serve.disconnect import ClientGone
from samovar.serve.encodings import PIECE_BYTES, Chain, chain_for

MIN_BYTES_PER_S = 1024
"""What an upload must bring on average, after a first `silence_s`: slower than any link, faster than a hold-up."""
RETRY_AFTER_S = 1.0
INLINE_BYTES = 2 << 10
"""Compressed data up to this long is expanded on the event loop, as far as its first whole piece; the rest and all
else in a thread."""


class Uploads:
    """Counts the bodies that are in memory. Used on the event loop only."""

    def __init__(self, max_bytes: int, max_total_bytes: int, silence_s: float) -> None:
        """`max_bytes` for one body, `max_total_bytes` for all; `silence_s`: without a byte for this long, one is given
        up."""
        self.max_bytes = max_bytes
        self.max_total_bytes = max_total_bytes
        self.silence_s = silence_s
        self.held_bytes = 0

    @contextmanager
    def begin(self, request: Request) -> Iterator[Upload]:
        """The body counts until the block ends: leave it once nothing needs the bytes any more."""
        upload = Upload(self, request)
        try:
            yield upload
        finally:
            upload.release()


class Upload:
    """One body. Bytes are paid for as they come, not as they are declared: a promise takes no memory."""

    def __init__(self, uploads: Uploads, request: Request) -> None:
        self._uploads = uploads
        self._request = request
        self._received_bytes = 0
        """As they came, compressed or not."""
        self._held_bytes = 0

    async def read(self) -> bytes:
        """The whole body, expanded. Raises BodyTooLarge, UploadTimeout, UnsupportedEncoding, RequestError (what is
        compressed is corrupt), Saturated (all bodies together take too much) and ClientGone."""
        chain = chain_for(self._request.headers.getlist("content-encoding"), self._uploads.max_bytes)
        declared = self._request.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit():
            self._check_size(int(declared[:20]))
        parts: list[bytes] = []
        began_s = time.monotonic()
        while True:
            slowest_s = began_s + self._uploads.silence_s + self._received_bytes / MIN_BYTES_PER_S
            message = await self._receive(min(self._uploads.silence_s, slowest_s - time.monotonic()))
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            self._received_bytes += len(part)
            if chain is None:
                self._take(len(part))
                parts.append(part)
            else:
                await self._expand(chain, part, parts)
            if not message.get("more_body", False):
                if chain is not None and self._received_bytes:
                    chain.finish()
                return b"".join(parts)

    async def _expand(self, chain: Chain, data: bytes, parts: list[bytes]) -> None:
        """Each piece is paid for before the next one is made."""
        pieces = chain.push(data)
        inline = chain.is_single and len(data) <= INLINE_BYTES
        while True:
            piece = next(pieces, None) if inline else await asyncio.to_thread(next, pieces, None)
            if piece is None:
                return
            self._take(len(piece))
            parts.append(piece)
            inline = inline and len(piece) < PIECE_BYTES

    def release(self) -> None:
        self._uploads.held_bytes -= self._held_bytes
        self._held_bytes = 0

    async def _receive(self, timeout_s: float) -> Message:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._request.receive()
        except TimeoutError:
            raise UploadTimeout(
                f"The request body came too slowly: {self._received_bytes} bytes so far; at least one is needed every "
                f"{self._uploads.silence_s:g} s, and {MIN_BYTES_PER_S} per second on average."
            ) from None

    def _take(self, num_bytes: int) -> None:
        self._held_bytes += num_bytes
        self._uploads.held_bytes += num_bytes
        self._check_size(self._held_bytes)
        if self._uploads.held_bytes > self._uploads.max_total_bytes:
            raise Saturated(
                f"The request bodies being read take more than {self._uploads.max_total_bytes} bytes together.",
                retry_after_s=RETRY_AFTER_S,
            )

    def _check_size(self, num_bytes: int) -> None:
        if num_bytes > self._uploads.max_bytes:
            raise BodyTooLarge(
                f"The request body may have at most {self._uploads.max_bytes} bytes; got {num_bytes} or more."
            )
