"""Talking to the application without a socket: whole requests with httpx, and single exchanges that can be watched
byte by byte and broken off at any point."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx

from samovar.serve.app import make_app
from samovar.serve.config import ServeConfig
from samovar.serve.drain import Drain
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer
from tests.serve.scripted import ScriptedService


class Server:
    def __init__(
        self, service: ScriptedService, tokenizer: Tokenizer, template: ChatTemplate | None, config: ServeConfig
    ) -> None:
        self.service = service
        self.drain = Drain()
        self.app = make_app(service, tokenizer, template, config, self.drain)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app=self.app), base_url="http://test")

    async def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return await self.client.post(path, json=body, headers=headers)

    async def chat(self, text: str = "Hi", **fields: Any) -> httpx.Response:
        return await self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **fields})

    async def complete(self, prompt: Any = "Hi", **fields: Any) -> httpx.Response:
        return await self.post("/v1/completions", {"prompt": prompt, **fields})

    def exchange(self, path: str, body: Any, send_delay_s: float = 0.0) -> Exchange:
        return Exchange(self.app, path, [json.dumps(body).encode()], send_delay_s)


class Exchange:
    """One request in flight. `sent` grows as the application answers; `times` has when each body part came. With
    `complete` false the body goes on after `parts`: see `feed`."""

    def __init__(
        self,
        app: Any,
        path: str,
        parts: list[bytes],
        send_delay_s: float = 0.0,
        headers: dict[str, str | bytes] | None = None,
        complete: bool = True,
    ) -> None:
        self._send_delay_s = send_delay_s
        self._incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for at, part in enumerate(parts):
            self.feed(part, more=at + 1 < len(parts) or not complete)
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.sent: list[bytes] = []
        self.times: list[float] = []
        self.started_s = time.monotonic()
        self._changed = asyncio.Event()
        given = [
            (name.encode(), value if isinstance(value, bytes) else value.encode())
            for name, value in (headers or {}).items()
        ]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "server": ("test", 80),
            "client": ("test", 1), "headers": given,
        }  # fmt: skip
        self.task = asyncio.create_task(app(scope, self._incoming.get, self._send))

    def feed(self, part: bytes, *, more: bool) -> None:
        self._incoming.put_nowait({"type": "http.request", "body": part, "more_body": more})

    async def _send(self, message: dict[str, Any]) -> None:
        if self._send_delay_s:
            await asyncio.sleep(self._send_delay_s)
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        elif message.get("body"):
            self.sent.append(message["body"])
            self.times.append(time.monotonic() - self.started_s)
        self._changed.set()

    async def until(self, condition: Any, timeout_s: float = 5.0) -> None:
        """Waits until `condition(self)` holds, looking after everything the application sends."""
        async with asyncio.timeout(timeout_s):
            while not condition(self):
                self._changed.clear()
                changed = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({self.task, changed}, return_when=asyncio.FIRST_COMPLETED, timeout=0.02)
                changed.cancel()
                assert condition(self) or not self.task.done(), f"ended early: {self.status} {self.sent}"

    def disconnect(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def done(self, timeout_s: float = 5.0) -> None:
        async with asyncio.timeout(timeout_s):
            await self.task

    @property
    def body(self) -> bytes:
        return b"".join(self.sent)

    @property
    def events(self) -> list[Any]:
        return events(self.body.decode())


def events(text: str) -> list[Any]:
    """The data of every server-sent event: parsed JSON, or "[DONE]"; comments are left out."""
    found = []
    for block in text.split("\n\n"):
        if block.startswith("data: "):
            data = block.removeprefix("data: ")
            found.append(data if data == "[DONE]" else json.loads(data))
        else:
            assert not block or block.startswith(":"), block
    return found
