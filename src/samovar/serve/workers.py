"""Long computations of the front end, off the event loop and bounded in number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

INLINE_BYTES = 2 << 10
"""Inputs up to this long take a millisecond or two; no other request waits noticeably for that."""


class Workers:
    """A few threads. Own it for the life of the server; `close()` once."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="samovar-text")

    async def run(self, input_bytes: int, job: Callable[[], T]) -> T:
        """Here and now when the input is short, else in a thread. Raises what the job raises."""
        if input_bytes <= INLINE_BYTES:
            return job()
        return await self.thread(job)

    async def thread(self, job: Callable[[], T]) -> T:
        """In a thread, for what may take long however short its input is: a few bytes name a stored conversation or a
        grammar. Raises what the job raises."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, job)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
