"""Bodies on their way in: clients that leave, dawdle or send too much, and a shutdown meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
import json
import time

import pytest

from tests.serve.asgi import Exchange, Server
from tests.serve.conftest import MakeServer, ids
from tests.serve.scripted import Script

PATHS = ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize")
BODY = b'{"prompt": "Hi", "tokens": [], "messages": [{"role": "user", "content": "Hi"}]}'
BODIES = {path: BODY for path in PATHS} | {"/tokenize": b'{"prompt": "Hi"}'}


def upload(server: Server, path: str, *parts: bytes, **headers: str) -> Exchange:
    """A body of which `parts` have come and more is to come."""
    return Exchange(server.app, path, list(parts), headers=dict(headers), complete=False)


async def counter(server: Server, name: str) -> float:
    page = (await server.client.get("/metrics")).text
    lines = [line for line in page.splitlines() if line.startswith(name)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("parts", [(), (BODY[:9],), (BODY[:9], b"")])
async def test_leaving_during_the_upload_is_no_error(
    make_server: MakeServer, path: str, parts: tuple[bytes, ...]
) -> None:
    server = make_server()
    exchange = upload(server, path, *parts)
    await asyncio.sleep(0.01)
    exchange.disconnect()
    await exchange.done()
    assert await counter(server, "samovar:disconnects_total") == 1
    assert await counter(server, "samovar:error_responses_total") == 0
    assert server.drain.num_open == 0 and exchange.status == 499


@pytest.mark.parametrize("path", PATHS[:2])
async def test_shutdown_waits_for_what_was_admitted(make_server: MakeServer, path: str) -> None:
    """However little of it had come: nothing starts after the server believes that everything has ended."""
    server = make_server()
    exchange = upload(server, path)
    await asyncio.sleep(0.01)
    server.drain.begin()
    assert not await server.drain.finished(0.03)
    exchange.feed(BODIES[path], more=False)
    assert await server.drain.finished(2)
    await exchange.done()
    assert exchange.status == 200
    assert (await server.complete()).status_code == 503


@pytest.mark.parametrize("path", PATHS[:2])
async def test_cut_off_during_the_upload(make_server: MakeServer, path: str) -> None:
    server = make_server()
    exchange = upload(server, path, b"{")
    await asyncio.sleep(0.01)
    server.drain.begin()
    server.drain.cut_off()
    assert await server.drain.finished(0.2)
    await exchange.done(0.2)
    assert exchange.status == 503 and json.loads(exchange.body)["error"]["code"] == "draining"
    assert not server.service.requests


@pytest.mark.parametrize("path", PATHS)
async def test_silence_ends_an_upload(make_server: MakeServer, path: str) -> None:
    server = make_server(body_timeout_s=0.1)
    for parts in ((), (b"{",), (b" " * 5000,)):
        exchange = upload(server, path, *parts)
        await exchange.done(1)
        assert exchange.status == 408 and exchange.headers["connection"] == "close"
        assert json.loads(exchange.body)["error"]["code"] == "request_timeout"
        assert 0.08 < time.monotonic() - exchange.started_s < 0.5
    assert server.drain.num_open == 0


async def test_a_trickle_is_no_upload(make_server: MakeServer) -> None:
    """A byte now and then does not keep it alive; a slow link does."""
    server = make_server(body_timeout_s=0.2)
    exchange = upload(server, "/v1/completions")
    while not exchange.task.done() and time.monotonic() - exchange.started_s < 2:
        exchange.feed(b" ", more=True)
        await asyncio.sleep(0.02)
    assert exchange.status == 408 and time.monotonic() - exchange.started_s < 1
    exchange = upload(server, "/v1/completions")
    for _ in range(25):
        exchange.feed(b" " * 200, more=True)
        await asyncio.sleep(0.02)
    exchange.feed(BODY, more=False)
    await exchange.done()
    assert exchange.status == 200 and time.monotonic() - exchange.started_s > 0.4


async def test_all_bodies_together_are_bounded(make_server: MakeServer) -> None:
    server = make_server(max_body_bytes=2000, max_upload_bytes=3000)
    first, second = (upload(server, "/v1/completions", b" " * 1500) for _ in range(2))
    await asyncio.sleep(0.01)
    third = upload(server, "/v1/completions", b" ")
    await third.done()
    assert third.status == 429 and third.headers["retry-after"] == "1" and "3000" in third.body.decode()
    first.feed(BODY, more=False)
    await asyncio.sleep(0.01)
    second.feed(BODY, more=False)
    await asyncio.gather(first.done(), second.done())
    # Which of the two had to give way depends on nothing but who came later.
    assert (first.status, second.status) == (429, 200)
    assert (await server.complete("a" * 1900)).status_code == 200


def _finish(exchange: Exchange) -> None:
    exchange.feed(BODY, more=False)


def _break(exchange: Exchange) -> None:
    exchange.feed(b"\xff", more=False)


def _exceed(exchange: Exchange) -> None:
    exchange.feed(b" " * 1200, more=True)


ENDS: dict[str, Callable[[Exchange], object]] = {
    "complete": _finish,
    "refused": _break,
    "too large": _exceed,
    "disconnect": Exchange.disconnect,
    "silence": lambda exchange: None,
    "cancelled": lambda exchange: exchange.task.cancel(),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("end", ENDS)
async def test_every_end_gives_its_memory_back(make_server: MakeServer, path: str, end: str) -> None:
    server = make_server(max_body_bytes=2000, max_upload_bytes=2100, body_timeout_s=0.1)
    for _ in range(4):
        exchange = upload(server, path, b" " * 1000)
        await asyncio.sleep(0.005)
        ENDS[end](exchange)
        await asyncio.wait({exchange.task}, timeout=2)
        assert exchange.task.done() and exchange.status != 429
    assert (await server.complete("a" * 1900)).status_code == 200


async def test_a_long_answer_does_not_hold_its_body(make_server: MakeServer) -> None:
    """The memory of a body counts until it is tokens, not until its answer is complete."""
    server = make_server(Script(ids("abc"), prefill_s=30), max_body_bytes=2000, max_upload_bytes=2500)
    waiting = []
    for stream in (True, False):
        waiting.append(server.exchange("/v1/completions", {"prompt": "a" * 1500, "stream": stream}))
        await waiting[-1].until(lambda e: len(server.service.open) == len(waiting))
    assert (await server.post("/tokenize", {"prompt": "a" * 1500})).status_code == 200
    for exchange in waiting:
        exchange.disconnect()
        await exchange.done()


async def test_a_declared_length_takes_no_memory(make_server: MakeServer) -> None:
    server = make_server(max_body_bytes=2000, max_upload_bytes=2500)
    promises = [upload(server, "/v1/completions", **{"content-length": "2000"}) for _ in range(3)]
    await asyncio.sleep(0.01)
    assert (await server.complete("a" * 1900)).status_code == 200
    for odd in ("-1", "9" * 5000, "x", "\u00b2"):
        exchange = Exchange(server.app, "/v1/completions", [BODY], headers={"content-length": odd.encode("latin-1")})
        await exchange.done()
        assert exchange.status == (413 if odd[0] == "9" else 200), odd
    for exchange in promises:
        exchange.disconnect()
        await exchange.done()
