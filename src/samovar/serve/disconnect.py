"""News that ends a request while it is worked on, first of all that its client went away."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")
News = asyncio.Future[Exception]
"""Has a result, to be raised, once the work in hand is in vain."""


class ClientGone(Exception):
    """Nobody is left to answer. Never leaves this package."""


async def unless(news: Collection[News], work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled (and waited for) when any of `news` comes first: raises that."""
    task = asyncio.create_task(work)
    first: set[asyncio.Future[Any]] = {task, *news}
    try:
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    told = next((future for future in news if future.done()), None)
    if task.cancelled() and told is not None:
        raise told.result()
    return task.result()


class Disconnect:
    """Watches one request's `receive` from the moment its body was read; nothing else may receive after that."""

    def __init__(self, receive: Receive) -> None:
        self.news: News = asyncio.create_task(_until_gone(receive))

    def close(self) -> None:
        self.news.cancel()


async def _until_gone(receive: Receive) -> Exception:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return ClientGone()
