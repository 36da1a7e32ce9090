"""Time: keep-alives by the wall clock, disconnects at every point, death and cut-off in the middle."""

from __future__ import annotations

import asyncio
import time

import pytest

from samovar.serve.reading import Reading
from tests.serve.asgi import Exchange, Server
from tests.serve.conftest import MakeServer, ids
from tests.serve.scripted import Script

CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}]}
SLOW = Script(ids("a" * 1000), delay_s=0.01)


def start(server: Server, *, stream: bool, **fields: object) -> Exchange:
    return server.exchange(CHAT, {**HI, "stream": stream, **fields})


async def test_headers_before_the_first_token(make_server: MakeServer) -> None:
    server = make_server(Script(ids("abc", end=True), prefill_s=0.1))
    exchange = start(server, stream=True)
    await exchange.until(lambda e: e.status == 200)
    assert time.monotonic() - exchange.started_s < 0.08
    await exchange.done()


async def test_keep_alive_during_prefill(make_server: MakeServer) -> None:
    server = make_server(Script(ids("abc", end=True), prefill_s=0.5), keepalive_s=0.1)
    exchange = start(server, stream=True)
    await exchange.done()
    pings = [at for at, data in zip(exchange.times, exchange.sent, strict=True) if data == b": keep-alive\n\n"]
    assert 3 <= len(pings) <= 5
    assert all(abs(at - 0.1 * (k + 1)) < 0.08 for k, at in enumerate(pings))


async def test_keep_alive_while_text_is_held_back(make_server: MakeServer) -> None:
    """Tokens come all the time, but none may be shown: the client still hears something."""
    server = make_server(Script(ids("a" * 60, end=True), delay_s=0.01), keepalive_s=0.1)
    exchange = start(server, stream=True, stop="a" * 100)
    await exchange.done()
    assert exchange.sent.count(b": keep-alive\n\n") >= 3
    assert exchange.events[-2]["choices"][0]["delta"] == {"content": "a" * 60}


async def test_no_keep_alive_while_text_flows(make_server: MakeServer) -> None:
    exchange = start(make_server(Script(ids("a" * 30, end=True), delay_s=0.01), keepalive_s=0.2), stream=True)
    await exchange.done()
    assert b": keep-alive\n\n" not in exchange.sent


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("where", ["verdict", "prefill", "decode"])
async def test_disconnect(make_server: MakeServer, stream: bool, where: str) -> None:
    """The engine hears of it at once, wherever the request is, and of how many tokens arrived."""
    script = {"verdict": Script(ids("abc"), verdict_s=60), "prefill": Script(ids("abc"), prefill_s=60), "decode": SLOW}
    server = make_server(script[where])
    exchange = start(server, stream=stream, n=2)
    await exchange.until(lambda e: len(server.service.requests) == 2)
    if where == "decode":
        await asyncio.sleep(0.1)
    exchange.disconnect()
    before = time.monotonic()
    await exchange.done()
    assert time.monotonic() - before < 0.2
    assert not server.service.open and server.drain.num_open == 0
    kept = [tokens for _, tokens in sorted(server.service.finished)]
    assert len(kept) == 2 and (min(kept) > 0 if where == "decode" else kept == [0, 0])
    page = (await server.client.get("/metrics")).text
    assert 'samovar:disconnects_total{engine="0",model_name="tea"} 1.0' in page


async def test_disconnect_after_the_answer_costs_nothing(make_server: MakeServer) -> None:
    server = make_server()
    exchange = start(server, stream=True)
    await exchange.done()
    exchange.disconnect()
    assert server.service.finished == [] and exchange.events[-1] == "[DONE]"


async def test_cancelled_by_the_server(make_server: MakeServer) -> None:
    """As when uvicorn gives up on a connection: nothing stays behind."""
    server = make_server(SLOW)
    for stream in (False, True):
        exchange = start(server, stream=stream)
        await exchange.until(lambda e: bool(server.service.open))
        exchange.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exchange.done()
        assert not server.service.open and server.drain.num_open == 0


async def test_engine_dies(make_server: MakeServer) -> None:
    server = make_server(SLOW)
    stream, whole = start(server, stream=True), start(server, stream=False)
    await stream.until(lambda e: len(e.sent) > 2)
    server.service.die("killed by signal 9")
    await stream.done(0.5)
    await whole.done(0.5)
    assert stream.events[-2]["error"]["code"] == "engine_dead" and stream.events[-1] == "[DONE]"
    assert whole.status == 503 and b"engine_dead" in whole.body


async def test_cut_off(make_server: MakeServer) -> None:
    server = make_server(SLOW)
    stream, whole = start(server, stream=True), start(server, stream=False)
    await stream.until(lambda e: len(e.sent) > 2)
    server.drain.begin()
    assert not await server.drain.finished(0.05)
    server.drain.cut_off()
    assert await server.drain.finished(0.5)
    assert stream.events[-2]["error"]["code"] == "draining"
    await whole.done()
    assert whole.status == 503 and not server.service.open


async def test_drain_lets_open_requests_finish(make_server: MakeServer) -> None:
    server = make_server(Script(ids("a" * 20, end=True), delay_s=0.01))
    stream = start(server, stream=True)
    await stream.until(lambda e: bool(e.sent))
    server.drain.begin()
    assert await server.drain.finished(2)
    await stream.done()
    assert stream.events[-2]["choices"][0]["finish_reason"] == "stop"


async def test_slow_reader_gets_larger_chunks(make_server: MakeServer) -> None:
    """The engine is not held up by a client that reads slowly, and what waited goes out together."""
    server = make_server(Script(ids("a" * 100, end=True), delay_s=0.001))
    exchange = server.exchange(CHAT, {**HI, "stream": True}, send_delay_s=0.05)
    await exchange.done()
    assert len(exchange.sent) < 15
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in exchange.events[:-1])
    assert text == "a" * 100


@pytest.mark.parametrize("stream", [False, True])
async def test_cancelled_at_any_moment(make_server: MakeServer, stream: bool) -> None:
    """However far a request has come: after its task was cancelled nothing of it is left."""
    for ticks in range(60):
        server = make_server(SLOW)
        exchange = start(server, stream=stream, n=2)
        for _ in range(ticks):  # some of its way leads through a thread, which takes time, not turns of the loop
            await asyncio.sleep(0.0003)
        exchange.task.cancel()
        await asyncio.wait({exchange.task}, timeout=2)
        await asyncio.sleep(0)
        assert not server.service.open and server.drain.num_open == 0, ticks
    assert server.service.requests


async def test_usage_is_counted_once_per_step(make_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once per choice: with many choices that would be quadratic in their number."""
    calls, usage = [], Reading.usage
    monkeypatch.setattr(Reading, "usage", lambda reading: calls.append(1) or usage(reading))
    server = make_server(Script(ids("abcde", end=True), delay_s=0.02))
    options = {"include_usage": True, "continuous_usage_stats": True}
    exchange = start(server, stream=True, n=32, stream_options=options)
    await exchange.done()
    assert len(exchange.events) > 32 * 5 and 2 <= len(calls) <= 64
