"""The outputs of one request, in order, for one consumer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from samovar.core.events import Output
from samovar.policy.hints import HintAnswer


class OutputStream(AsyncIterator[Output]):
    """Ends after the output that has `finish` set. A consumer that goes away before (closed, cancelled or collected)
    makes `abandon` run once, with the number of tokens it had been given."""

    def __init__(self, abandon: Callable[[int], None]) -> None:
        self._abandon = abandon
        self._waiting: deque[Output] = deque()
        self._arrived = asyncio.Event()
        self._num_tokens = 0
        self._over = False
        self.hints: tuple[HintAnswer, ...] = ()
        """The core's answers to the hints of its request."""

    def put(self, output: Output) -> None:
        self._waiting.append(output)
        self._arrived.set()

    async def __anext__(self) -> Output:
        if self._over:
            raise StopAsyncIteration
        try:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
        except asyncio.CancelledError:
            self.close()
            raise
        output = self._waiting.popleft()
        self._num_tokens += len(output.token_ids)
        self._over = output.finish is not None
        return output

    def end(self) -> None:
        """Nothing will come: the request was refused."""
        self._over = True

    def close(self) -> None:
        """The consumer wants no more. Idempotent."""
        if not self._over:
            self._over = True
            self._abandon(self._num_tokens)

    async def aclose(self) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
