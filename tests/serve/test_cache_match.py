"""POST /v1/cache/match: the answer is that of the request itself, for the caller's own part of the cache, untouched."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve.conftest import MakeServer

MESSAGES = [{"role": "user", "content": "tea " * 100}]


async def test_what_would_hit_is_what_then_hits(make_server: MakeServer) -> None:
    server = make_server()
    for path, body in (
        ("/v1/chat/completions", {"messages": MESSAGES, "session_id": "s"}),
        ("/v1/completions", {"prompt": "x" * 100}),
        ("/v1/completions", {"prompt": [5] * 96}),
    ):
        for _ in range(2):
            told = (await server.post("/v1/cache/match", body)).json()
            usage = (await server.post(path, body)).json()["usage"]
            assert told == {
                "prompt_tokens": usage["prompt_tokens"],
                "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"],
                "tiers": {"device": usage["prompt_tokens_details"]["cached_tokens"]},
                "block_size": 16,
            }
    assert told["cached_tokens"] == 80
    assert len(server.service.requests) == 6


async def test_nobody_looks_into_another_ones_cache(make_server: MakeServer) -> None:
    server = make_server(api_keys=("one", "two"))
    body = {"prompt": "x" * 100}

    async def cached(key: str, **fields: Any) -> int:
        answer = await server.post("/v1/cache/match", {**body, **fields}, **{"x-api-key": key})
        return int(answer.json()["cached_tokens"])

    await server.post("/v1/completions", body, **{"x-api-key": "one"})
    await server.post("/v1/completions", {**body, "cache_salt": "s"}, **{"x-api-key": "one"})
    assert [await cached("one"), await cached("two"), await cached("one", cache_salt="s")] == [96, 0, 96]
    tenant = server.service.requests[0].tenant
    assert await cached("two", cache_salt=tenant) == await cached("one", cache_salt="t") == 0
    assert (await server.post("/v1/cache/match", body)).status_code == 401


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 9999]}, "prompt[1]"),
        ({"messages": []}, "messages"),
        ({"messages": MESSAGES, "n": 0}, "n"),
        ({"prompt": "x" * 5000}, "prompt"),
        ({"prompt": "x", "suffix": "y"}, "suffix"),
    ],
)
async def test_what_could_not_be_asked_is_refused_alike(
    make_server: MakeServer, body: dict[str, Any], param: str
) -> None:
    response = await make_server().post("/v1/cache/match", body)
    assert response.status_code == 400 and response.json()["error"]["param"] == param


async def test_models_and_the_engine_count_here_too(make_server: MakeServer) -> None:
    server = make_server(served_model_names=("tea",))
    assert (await server.post("/v1/cache/match", {"prompt": "x", "model": "milk"})).status_code == 404
    server.service.die("gone")
    assert (await server.post("/v1/cache/match", {"prompt": "x"})).status_code == 503
