"""The server on a real socket: shutting down, dying, a port that is taken, clients that hang up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
import logging
import os
import signal
import socket
import time

import httpx
import openai
import pytest

from samovar.base.errors import ConfigError
from samovar.serve.config import ServeConfig
from samovar.serve.run import ENGINE_DIED, OK, listen, serve
from tests.serve.conftest import ANSWER, ids
from tests.serve.scripted import Script, ScriptedService

SLOW = Script(ids("a" * 50, end=True), delay_s=0.02)
BODY = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}


@asynccontextmanager
async def running(
    tokenizer, template, info, script: Script | None = None, **fields: object
) -> AsyncIterator[tuple[str, ScriptedService, asyncio.Task[int]]]:
    config = ServeConfig(**{"model": "tea", "port": 0, "dead_linger_s": 0.3, **fields})  # type: ignore[arg-type]
    service = ScriptedService(lambda request: script or Script(ids(ANSWER, end=True)), info)
    listener = listen(config)
    port = listener.getsockname()[1]
    task = asyncio.create_task(serve(service, tokenizer, template, config, listener))
    url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient() as client:
        while (await client.get(f"{url}/health")).status_code != 200:
            await asyncio.sleep(0.01)
    yield url, service, task
    if not task.done():
        os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(5):
        await task


async def test_sdk(tokenizer, template, info) -> None:
    """The client that users have, over a socket: whole, streamed, refused."""
    async with (
        running(tokenizer, template, info, api_keys=("key",)) as (url, _, _),
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0) as client,
    ):
        messages = [{"role": "user", "content": "Hi"}]
        answer = await client.chat.completions.create(model="m", messages=messages, logprobs=True, n=2)
        assert [choice.message.content for choice in answer.choices] == [ANSWER] * 2
        assert answer.usage.prompt_tokens_details.cached_tokens == 0
        stream = await client.chat.completions.create(
            model="m", messages=messages, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == ANSWER
        assert chunks[-1].usage.completion_tokens == len(ids(ANSWER)) + 1
        text = await client.completions.create(model="m", prompt=["a", "b"], echo=True)
        assert [choice.text for choice in text.choices] == ["a" + ANSWER, "b" + ANSWER]
        assert [model.id async for model in client.models.list()] == ["tea"]
        with pytest.raises(openai.BadRequestError) as refusal:
            await client.chat.completions.create(model="m", messages=messages, temperature=3)
        assert refusal.value.param == "temperature"
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="other").models.list()


async def until(holds: Callable[[], bool], limit_s: float = 10.0) -> None:
    """A busy machine may take its time; what is tested is that it happens."""
    deadline = asyncio.get_running_loop().time() + limit_s
    while not holds():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


async def test_hang_up(tokenizer, template, info) -> None:
    """Closing the socket after a few tokens frees the request within a step."""
    async with running(tokenizer, template, info, SLOW) as (url, service, _):
        for stream in (True, False):
            async with httpx.AsyncClient() as client:
                request = client.build_request("POST", f"{url}/v1/chat/completions", json={**BODY, "stream": stream})
                sending = asyncio.create_task(client.send(request, stream=True))
                await until(lambda: bool(service.open))
                if stream:
                    await (await sending).aclose()
                else:
                    sending.cancel()
                    await asyncio.wait([sending])
                await until(lambda: not service.open)
        assert len(service.finished) == 2


async def test_shutdown_waits_for_open_streams(tokenizer, template, info) -> None:
    async with running(tokenizer, template, info, SLOW) as (url, _, task), httpx.AsyncClient() as client:
        async with client.stream("POST", f"{url}/v1/chat/completions", json=BODY) as response:
            lines = response.aiter_lines()
            await anext(lines)
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.1)
            assert (await client.post(f"{url}/v1/chat/completions", json=BODY)).status_code == 503
            rest = [line async for line in lines]
        assert rest[-2:] == ["data: [DONE]", ""] or rest[-1] == "data: [DONE]"
        assert '"finish_reason":"stop"' in "".join(rest)
        assert await task == OK


@pytest.mark.parametrize("count", [1, 2])
async def test_shutdown_has_a_limit(tokenizer, template, info, caplog: pytest.LogCaptureFixture, count: int) -> None:
    forever = Script(ids("a" * 5000), delay_s=0.02)
    caplog.set_level(logging.INFO)
    async with running(tokenizer, template, info, forever, drain_timeout_s=0.2) as (url, service, task):
        async with httpx.AsyncClient() as client, AsyncExitStack() as streams:
            answers = [
                await streams.enter_async_context(client.stream("POST", f"{url}/v1/chat/completions", json=BODY))
                for _ in range(count)
            ]
            os.kill(os.getpid(), signal.SIGTERM)
            texts = ["".join([line async for line in answer.aiter_lines()]) for answer in answers]
        assert all('"code":"draining"' in text for text in texts) and not service.open
        assert await task == OK
    open_ones = "1 request" if count == 1 else f"{count} requests"
    assert f"shutting down: {open_ones} open" in caplog.messages
    assert f"cutting off {open_ones} after 0.2 s" in caplog.messages


async def test_second_signal(tokenizer, template, info, caplog: pytest.LogCaptureFixture) -> None:
    forever = Script(ids("a" * 5000), delay_s=0.02)
    async with running(tokenizer, template, info, forever) as (url, _, task), httpx.AsyncClient() as client:
        sending = asyncio.create_task(client.post(f"{url}/v1/chat/completions", json=BODY))
        await asyncio.sleep(0.1)
        before = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
        assert await task == OK
        assert time.monotonic() - before < 1
        sending.cancel()
        await asyncio.wait([sending])
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not [record for record in caplog.records if record.exc_info or "Traceback" in record.message]


async def test_engine_death_ends_the_server(tokenizer, template, info) -> None:
    async with running(tokenizer, template, info, SLOW) as (url, service, task), httpx.AsyncClient() as client:
        async with client.stream("POST", f"{url}/v1/chat/completions", json=BODY) as response:
            service.die("killed by signal 9")
            text = "".join([line async for line in response.aiter_lines()])
        assert '"code":"engine_dead"' in text
        health = await client.get(f"{url}/health")
        assert health.status_code == 503 and "signal 9" in health.json()["error"]["message"]
        async with asyncio.timeout(5):
            assert await task == ENGINE_DIED


def test_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1.*{port}.*in use"):
            listen(ServeConfig("tea", port=port))
    with pytest.raises(ConfigError, match="no-such-host"):
        listen(ServeConfig("tea", host="no-such-host.invalid"))
