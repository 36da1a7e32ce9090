"""Connections on a real socket that bring no request, an endless one, or are too many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
import logging
import resource
import time

import pytest

from samovar.serve import run
from samovar.serve.connections import MAX_HEAD_BYTES, RESERVED_FILES, connections_allowed
from tests.serve.conftest import ids
from tests.serve.scripted import Script
from tests.serve.test_run import running

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"
BODY = b'{"prompt": "Hi"}'
WHOLE = HEAD + b"content-length: %d\r\n\r\n%s" % (len(BODY), BODY)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "KEEP_ALIVE_S", 0.2)


async def trickle(data: bytes, size: int, pause_s: float = 0.01) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]
        await asyncio.sleep(pause_s)


async def converse(url: str, data: AsyncIterator[bytes], patience_s: float = 3.0) -> tuple[bytes, float]:
    """Sends until the server closes; what it answered, and when it closed."""
    began_s = time.monotonic()
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    async def send() -> None:
        async for part in data:
            writer.write(part)
            await writer.drain()

    sending = asyncio.create_task(send())
    answer = b""
    try:
        async with asyncio.timeout(patience_s):
            while part := await reader.read(65536):
                answer += part
    except ConnectionError:
        pass
    finally:
        sending.cancel()
        await asyncio.wait({sending})
        writer.close()
    return answer, time.monotonic() - began_s


LONG = b"x" * 10_000
SLOW_ONES: dict[str, tuple[Callable[[], AsyncIterator[bytes]], bytes]] = {
    "silent": (lambda: trickle(b"", 1), b""),
    "endless head": (lambda: trickle(HEAD + b"a: " + LONG, 1), b""),
    "endless head after an answer": (lambda: trickle(WHOLE + HEAD + LONG, len(WHOLE)), b"200"),
    "empty lines after an answer": (lambda: trickle(WHOLE + b"\r\n" * 5000, len(WHOLE)), b"200"),
    "endless body": (lambda: trickle(HEAD + b"content-length: 9999\r\n\r\n" + LONG, 5), b"408"),
    "endless chunks": (
        lambda: trickle(HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 5000, 5),
        b"408",
    ),
    "endless body after a refusal": (
        lambda: trickle(HEAD + b"content-length: 999999999\r\n\r\n" + LONG * 10, 60),
        b"413",
    ),
}


@pytest.mark.parametrize("name", SLOW_ONES)
async def test_no_connection_is_held_for_ever(tokenizer, template, info, name: str) -> None:
    data, status = SLOW_ONES[name]
    async with running(tokenizer, template, info, body_timeout_s=0.2) as (url, _, _):
        answer, seconds = await converse(url, data())
        assert seconds < 1.5
        assert answer.startswith(b"HTTP/1.1 " + status) if status else answer == b""


async def test_patience_with_the_rest(tokenizer, template, info, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long answer, and a client that pauses between its requests, are cut off by no limit."""
    monkeypatch.setattr(run, "KEEP_ALIVE_S", 1)
    slow = Script(ids("a" * 16), delay_s=0.1)
    async with running(tokenizer, template, info, slow, body_timeout_s=0.1) as (url, _, _):
        answer, seconds = await converse(url, trickle(WHOLE * 2, len(WHOLE), pause_s=2), patience_s=6)
        assert answer.count(b"HTTP/1.1 200") == 2 and seconds > 4


async def test_a_head_has_a_size(tokenizer, template, info) -> None:
    endless = HEAD + b"".join(b"x-%d: %s\r\n" % (at, b"y" * 1000) for at in range(1000))
    for data in (endless, HEAD + b"x: " + b"y" * 1_000_000, b"GET /" + b"z" * 1_000_000):
        async with running(tokenizer, template, info) as (url, _, _):
            answer, _ = await converse(url, trickle(data, 8000, pause_s=0))
            assert answer.startswith(b"HTTP/1.1 400") and str(MAX_HEAD_BYTES).encode() in answer


async def test_one_too_many(tokenizer, template, info) -> None:
    async with running(tokenizer, template, info, max_connections=3) as (url, _, _):
        host, port = url.removeprefix("http://").split(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
        await asyncio.sleep(0.05)
        answer, _ = await converse(url, trickle(WHOLE, 1000))
        assert answer.startswith(b"HTTP/1.1 429") and b"retry-after: 1" in answer and b'"code":"saturated"' in answer
        opened.pop()[1].close()
        await asyncio.sleep(0.05)
        answer, _ = await converse(url, trickle(WHOLE, 1000))
        assert answer.startswith(b"HTTP/1.1 200")
        for _, writer in opened:
            writer.close()


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_head(tokenizer, template, info, version: bytes) -> None:
    """What a load balancer asks: the status alone."""
    async with running(tokenizer, template, info) as (url, service, _):
        ask = b"HEAD /health HTTP/" + version + b"\r\nhost: x\r\nconnection: close\r\n\r\n"
        answer, _ = await converse(url, trickle(ask, 1000))
        assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"\r\n\r\n")
        service.dead = "exit code 1"
        answer, _ = await converse(url, trickle(ask, 1000))
        assert answer.startswith(b"HTTP/1.1 503") and answer.endswith(b"\r\n\r\n")
        service.dead = None


async def test_http_1_0_knows_no_chunks(tokenizer, template, info) -> None:
    """A stream ends with the connection; an answer of known length says so."""
    for stream, size in ((True, b""), (False, b"content-length")):
        body = b'{"prompt": "Hi", "stream": %s}' % (b"true" if stream else b"false")
        head = b"POST /v1/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(body)
        async with running(tokenizer, template, info) as (url, service, _):
            answer, _ = await converse(url, trickle(head + body, 1000))
        headers, _, content = answer.partition(b"\r\n\r\n")
        assert headers.startswith(b"HTTP/1.1 200") and b"connection: close" in headers.lower()
        assert b"transfer-encoding" not in headers.lower() and size in headers.lower()
        assert (b"content-length" in headers.lower()) is not stream
        assert content.startswith(b"data: {" if stream else b"{") and not service.open
        assert content.endswith(b"data: [DONE]\n\n" if stream else b"}")


@pytest.mark.parametrize("protocol", [b"websocket", b"h2c", b"x"])
async def test_another_protocol_is_passed_over_quietly(
    tokenizer, template, info, caplog: pytest.LogCaptureFixture, protocol: bytes
) -> None:
    offer = b"connection: upgrade\r\nupgrade: " + protocol + b"\r\nsec-websocket-key: dGhl\r\n"
    async with running(tokenizer, template, info) as (url, _, _):
        caplog.set_level(logging.INFO)
        caplog.clear()
        answer, _ = await converse(url, trickle(b"GET /health HTTP/1.1\r\nhost: x\r\n" + offer + b"\r\n", 1000))
        assert answer.startswith(b"HTTP/1.1 200")
        assert not caplog.messages


def test_connections_need_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, wanted, allowed in (
        (1024, 4096, 1024 - RESERVED_FILES),
        (10_000, 4096, 4096),
        (10, 4096, 1),
        (resource.RLIM_INFINITY, 4096, 4096),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, soft=soft: (soft, soft))
        assert connections_allowed(wanted) == allowed


async def test_the_access_log_has_one_printable_line_per_request(
    tokenizer, template, info, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    targets = [
        b"/health?a=b",
        b"/%0aERROR%1b[2J",
        b"/health?%0a",
        b"/health?\x1b[2J",
        b"/health?\xff",
        b"/\xc3\xbc",
        b"/\x85",
    ]
    async with running(tokenizer, template, info, access_log=True) as (url, _, _):
        caplog.clear()
        for target in targets:
            await converse(url, trickle(b"GET " + target + b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", 1000))
        messages = [message for _, _, message in caplog.record_tuples]
    assert len(messages) >= len(targets)
    assert all(message.isprintable() and message.isascii() for message in messages), messages
    assert not [record for record in caplog.records if record.exc_info], messages
