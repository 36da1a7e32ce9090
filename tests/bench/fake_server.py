"""An OpenAI-compatible server with an infinite prefix cache and faults to order, on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
import json
import socket
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
import uvicorn

BLOCK = 16


@dataclass(slots=True)
class FakeServer:
    forms: tuple[str, ...] = ("tokens", "text", "chat")
    takes_ignore_eos: bool = True
    max_model_len: int | None = 8192
    says_block_size: bool = True
    says_cached: bool = True
    brags: bool = False
    """Claims to have found more than was sent."""
    keeps_answers: bool = False
    """The KV of what it generates is found too, as in Samovar."""
    vocabulary: int = 50_000
    """Token ids from here on are refused."""
    answers_short_by: int = 0
    """Tokens that an answer lacks, as the usage says."""
    counts_extra: int = 0
    """Prompt tokens that the usage of streamed answers has beyond those sent."""
    retokenises: bool = False
    """Takes token ids for something else and counts other tokens."""
    token_s: float = 0.0
    fails_every: int = 0
    """Each such request is answered 500."""
    fails_until: int = 0
    """The first requests are answered 500."""
    breaks_every: int = 0
    """Each such stream ends in the middle."""
    overflows_every: int = 0
    hangs: bool = False
    dies_after: int = 0
    """Requests, after which nothing listens any more."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    probes: list[dict[str, str]] = field(default_factory=list)
    """Headers of requests that are not streamed."""
    url: str = ""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    _seen: set[tuple[Any, ...]] = field(default_factory=set)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self.models),
                Route("/metrics", self.metrics),
                Route("/v1/completions", self.completions, methods=["POST"]),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
            ]
        )

    async def models(self, request: Request) -> Response:
        card: dict[str, Any] = {"id": "fake"}
        if self.max_model_len is not None:
            card["max_model_len"] = self.max_model_len
        return JSONResponse({"data": [card]})

    async def metrics(self, request: Request) -> Response:
        info = f'vllm:cache_config_info{{a="b",block_size="{BLOCK}"}} 1.0\n' if self.says_block_size else ""
        return PlainTextResponse(f"# TYPE x gauge\n{info}")

    async def completions(self, request: Request) -> Response:
        body = await request.json()
        prompt = body["prompt"]
        form = "text" if isinstance(prompt, str) else "tokens"
        tokens = prompt.split() if isinstance(prompt, str) else prompt
        return await self._answer(request, body, form, tokens, body["max_tokens"])

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        tokens = [word for m in body["messages"] for word in (f"<{m['role']}>", *m["content"].split())]
        return await self._answer(request, body, "chat", tokens, body["max_completion_tokens"])

    async def _answer(
        self, request: Request, body: dict[str, Any], form: str, tokens: list[Any], count: int
    ) -> Response:
        if form not in self.forms or ("ignore_eos" in body and not self.takes_ignore_eos):
            return JSONResponse({"error": {"message": "no such thing"}}, 400)
        if form == "tokens" and max(tokens) >= self.vocabulary:
            return JSONResponse({"error": {"message": f"no token {max(tokens)}"}}, 400)
        if form == "tokens" and self.retokenises:
            tokens = [*tokens, 0]
        usage = {"prompt_tokens": len(tokens), "completion_tokens": count}
        if not body.get("stream"):
            self.probes.append(dict(request.headers))
            return JSONResponse({"choices": [], "usage": usage})
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        number = len(self.bodies)
        if self.dies_after and number > self.dies_after:
            self.stop.set()
            await asyncio.sleep(60)
        if self.hangs:
            await asyncio.sleep(60)
        if number <= self.fails_until or (self.fails_every and number % self.fails_every == 0):
            return JSONResponse({"error": {"message": "it broke", "code": "internal_error"}}, 500)
        if self.overflows_every and number % self.overflows_every == 0:
            return JSONResponse({"error": {"message": "too long", "code": "context_length_exceeded"}}, 400)
        usage["prompt_tokens"] += self.counts_extra
        usage["completion_tokens"] = max(1, count - self.answers_short_by)
        if self.says_cached:
            found = self._look_up(tokens) if not self.brags else 10**9
            usage |= {"prompt_tokens_details": {"cached_tokens": found}}
        if self.keeps_answers:
            self._look_up([*tokens, *(5000 + at for at in range(count - 1))])
        broken = bool(self.breaks_every) and number % self.breaks_every == 0
        return StreamingResponse(self._stream(form, count, usage, broken), media_type="text/event-stream")

    def _look_up(self, tokens: list[Any]) -> int:
        found = 0
        while (found + 1) * BLOCK < len(tokens) and tuple(tokens[: (found + 1) * BLOCK]) in self._seen:
            found += 1
        self._seen |= {tuple(tokens[: n * BLOCK]) for n in range(1, len(tokens) // BLOCK + 1)}
        return found * BLOCK

    async def _stream(self, form: str, count: int, usage: dict[str, Any], broken: bool) -> AsyncIterator[str]:
        for at in range(count):
            if self.token_s:
                await asyncio.sleep(self.token_s)
            if broken and at >= count // 2:
                return
            text, reason = f" w{at}", "length" if at == count - 1 else None
            choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
            choice |= {"delta": {"content": text}} if form == "chat" else {"text": text, "token_ids": [5000 + at]}
            yield f"data: {json.dumps({'choices': [choice]})}\n\n"
        yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"
        yield "data: [DONE]\n\n"


@asynccontextmanager
async def running(fake: FakeServer) -> AsyncIterator[FakeServer]:
    listener = socket.create_server(("127.0.0.1", 0))
    fake.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(fake.app(), log_config=None, lifespan="off", timeout_graceful_shutdown=0)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve([listener]))

    async def watch() -> None:
        await fake.stop.wait()
        server.should_exit = server.force_exit = True

    watcher = asyncio.create_task(watch())
    try:
        yield fake
    finally:
        fake.stop.set()
        await watcher
        await task
        listener.close()
