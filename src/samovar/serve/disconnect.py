"""Noticing that a client went away, at any point between its request and the last byte of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientGone(Exception):
    """Nobody is left to answer. Never leaves this package."""


class Disconnect:
    """Watches one request's `receive` from the moment its body was read; nothing else may receive after that."""

    def __init__(self, receive: Receive) -> None:
        self._watch = asyncio.create_task(_until_gone(receive))

    async def race(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which is cancelled (and waited for) when the client goes first: raises ClientGone."""
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({task, self._watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if task.cancelled():
            raise ClientGone
        return task.result()

    def close(self) -> None:
        self._watch.cancel()


async def _until_gone(receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
