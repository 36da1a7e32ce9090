"""One streamed completion of token ids, by vLLM's API or llama.cpp's, and when its tokens came."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
import json
import math
import time
from typing import Any, Literal

import httpx

Api = Literal["vllm", "llama"]
ERROR_CHARACTERS = 300


@dataclass(frozen=True)
class Endpoint:
    url: str
    api: Api
    model: str
    """The name that the vLLM API asks for; "" where there is none."""


@dataclass
class Answer:
    """Times are seconds since the request was sent."""

    prompt_tokens: int
    wanted: int
    arrivals: list[float] = field(default_factory=list)
    """Of every token."""
    token_ids: list[int] = field(default_factory=list)
    """llama.cpp leaves out those of pieces that end inside a character."""
    counted: int = 0
    """Tokens by the server's own count, where it gives one."""
    cached_tokens: int = 0
    end_s: float = 0.0
    error: str = ""

    @property
    def tokens(self) -> int:
        return max(len(self.arrivals), self.counted)

    @property
    def first_s(self) -> float:
        return self.arrivals[0] if self.arrivals else math.nan

    @property
    def tokens_per_s(self) -> float:
        """After the first token."""
        if self.tokens < 2 or self.arrivals[-1] <= self.arrivals[0]:
            return math.nan
        return (self.tokens - 1) / (self.arrivals[-1] - self.arrivals[0])

    @property
    def longest_gap_s(self) -> float:
        return max((b - a for a, b in zip(self.arrivals, self.arrivals[1:], strict=False)), default=0.0)


async def complete(
    client: httpx.AsyncClient,
    endpoint: Endpoint,
    prompt: Sequence[int],
    tokens: int,
    extra: dict[str, Any] | None = None,
) -> Answer:
    """Greedy, exactly `tokens` long. `extra`: fields to add to the body. Never raises for what a server or network can
    do: `error` says it."""
    answer, begin = Answer(len(prompt), tokens), time.perf_counter()
    path, body = _request(endpoint, prompt, tokens)
    body |= extra or {}
    try:
        # llama.cpp closes a connection after a stream without saying so: each request has one of its own.
        async with client.stream("POST", endpoint.url + path, json=body, headers={"connection": "close"}) as response:
            if response.status_code != 200:
                text = (await response.aread()).decode(errors="replace")
                answer.error = f"HTTP {response.status_code}: {text}"[:ERROR_CHARACTERS]
            else:
                async for event in _events(response):
                    _take(answer, endpoint.api, event, time.perf_counter() - begin)
    except (httpx.HTTPError, ValueError) as error:
        answer.error = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS]
    answer.end_s = time.perf_counter() - begin
    if not answer.error and answer.tokens != tokens:
        answer.error = f"{answer.tokens} tokens came, {tokens} were asked for"
    return answer


def _request(endpoint: Endpoint, prompt: Sequence[int], tokens: int) -> tuple[str, dict[str, Any]]:
    body: dict[str, Any] = {"prompt": list(prompt), "temperature": 0, "ignore_eos": True, "stream": True}
    if endpoint.api == "llama":
        return "/completion", body | {
            "n_predict": tokens,
            "cache_prompt": True,
            "return_tokens": True,
            "samplers": ["temperature"],
        }
    return "/v1/completions", body | {
        "model": endpoint.model,
        "max_tokens": tokens,
        "return_token_ids": True,
        "stream_options": {"include_usage": True},
    }


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line.startswith("error"):
            yield {"error": line}
        if line.startswith("data:") and line[5:].strip() != "[DONE]":
            event = json.loads(line[5:])
            if isinstance(event, dict):
                yield event


def _take(answer: Answer, api: Api, event: dict[str, Any], now_s: float) -> None:
    if event.get("error"):
        answer.error = str(event["error"])[:ERROR_CHARACTERS]
        return
    if api == "llama":
        ids, last = event.get("tokens") or [], bool(event.get("stop"))
        if last:
            answer.counted = int(event.get("tokens_predicted") or 0)
            answer.cached_tokens = int((event.get("timings") or {}).get("cache_n") or 0)
            return  # its `tokens` repeat all that came before
    else:
        choices = event.get("choices") or [{}]
        ids = choices[0].get("token_ids") or []
        usage = event.get("usage") or {}
        answer.counted = int(usage.get("completion_tokens") or answer.counted)
        details = usage.get("prompt_tokens_details") or {}
        answer.cached_tokens = int(details.get("cached_tokens") or answer.cached_tokens)
    answer.token_ids += ids
    answer.arrivals += [now_s] * len(ids)
