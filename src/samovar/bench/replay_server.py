"""Finds out what a server takes and can hold, with a handful of tiny requests, before a replay is sent to it.

They carry a session id that marks them as probes, so that a server which records its load leaves them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import re
from typing import Any, Literal

import httpx

from samovar.base.errors import ConfigError
from samovar.workload.prompts import TokenRange
from samovar.workload.recording import PROBE_SESSION

Form = Literal["tokens", "text", "chat"]
"""How prompts are sent: token ids or text to /v1/completions, or messages to /v1/chat/completions."""

DEFAULT_BLOCK_TOKENS = 16
PROBE_TIMEOUT_S = 60.0
PROBE_HEADERS = {"x-session-id": PROBE_SESSION}
LOW_IDS = (10, 11, 12)
"""Token ids that every vocabulary has."""
_BLOCK_SIZE = re.compile(r'^vllm:cache_config_info\{[^}]*\bblock_size="(\d+)"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    """Without /v1."""
    model: str
    form: Form
    forces_length: bool
    """It takes `ignore_eos`; without it answers may end early, and are counted as short."""
    max_tokens: int | None
    """Longest prompt with answer; None when it does not say."""
    block_tokens: int
    block_tokens_known: bool
    """False: the server does not say, and the usual size was taken."""
    form_reason: str = ""
    """Why not one of the forms before it; "" for the first, or the one asked for."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What the user said instead of leaving it to be found out; None: find out."""

    model: str | None = None
    form: Form | None = None
    max_tokens: int | None = None
    block_tokens: int | None = None

    def __post_init__(self) -> None:
        for flag, value in (("--block-size", self.block_tokens), ("--max-context-length", self.max_tokens)):
            if value is not None and value < 1:
                raise ConfigError(f"{flag} is {value}; it must be at least 1")


def base_url(url: str) -> str:
    """Without the trailing /v1 that OpenAI clients want. Raises ConfigError."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url {url}: must start with http:// or https://", param="url")
    return url.rstrip("/").removesuffix("/v1")


async def find_out(client: httpx.AsyncClient, url: str, options: ServerOptions, tokens: TokenRange) -> Server:
    """Raises ConfigError when no server answers, or none of the forms works."""
    cards = await _models(client, url)
    model = options.model or (str(cards[0].get("id", "")) if cards else "")
    if not model:
        raise ConfigError(f"{url}/v1/models lists no model: name one with --model", param="model")
    form, forces, reason = await _form(client, url, model, options.form, tokens)
    card = next((card for card in cards if card.get("id") == model), cards[0] if cards else {})
    block = options.block_tokens or await _block_tokens(client, url)
    return Server(
        url=url,
        model=model,
        form=form,
        forces_length=forces,
        max_tokens=options.max_tokens or await _max_tokens(client, url, card),
        block_tokens=block or DEFAULT_BLOCK_TOKENS,
        block_tokens_known=block is not None,
        form_reason=reason,
    )


async def answers(client: httpx.AsyncClient, url: str) -> bool:
    try:
        await client.get(f"{url}/v1/models", timeout=5.0)
    except httpx.HTTPError:
        return False
    return True


async def _models(client: httpx.AsyncClient, url: str) -> list[dict[str, Any]]:
    try:
        response = await client.get(f"{url}/v1/models", timeout=PROBE_TIMEOUT_S)
    except httpx.HTTPError as error:
        reason = str(error) or type(error).__name__
        raise ConfigError(f"--url: no server answers at {url} ({reason})", param="url") from error
    if response.status_code == 401:
        raise ConfigError(f"{url} asks for a key: give --api-key", param="api_key")
    try:
        data = response.json().get("data", [])
    except (ValueError, AttributeError):
        return []
    return [card for card in data if isinstance(card, dict)] if isinstance(data, list) else []


async def _form(
    client: httpx.AsyncClient, url: str, model: str, wanted: Form | None, tokens: TokenRange
) -> tuple[Form, bool, str]:
    """The first form that works, whether the server takes `ignore_eos`, and why no form before it does."""
    ids = (tokens.low, tokens.high - 1, tokens.low + 1)
    refusals: dict[str, str] = {}
    forms: tuple[Form, ...] = (wanted,) if wanted else ("tokens", "text", "chat")
    for form in forms:
        for forces in (True, False):
            refusal = await _try(client, url, model, form, forces, ids)
            if refusal is None:
                return form, forces, _listed(refusals)
            refusals.setdefault(form, refusal)
        # Another form would hide that only these ids are wrong, and measure something else than was asked for.
        if form == "tokens" and await _try(client, url, model, form, False, LOW_IDS) is None:
            raise ConfigError(
                f"--token-range {tokens.low}:{tokens.high}: {url} takes token ids, but not these ({refusals[form]}); "
                "keep inside the model's vocabulary, or send prompts another way (--send text)",
                param="token_range",
            )
    found = _listed(refusals)
    raise ConfigError(f"{url} takes prompts in no form tried ({found})", param="url")


def _listed(refusals: Mapping[str, str]) -> str:
    return "; ".join(f"{form}: {refusal}" for form, refusal in refusals.items())


async def _try(
    client: httpx.AsyncClient, url: str, model: str, form: Form, forces: bool, ids: Sequence[int]
) -> str | None:
    """None when it works, else why not."""
    body: dict[str, Any] = {"model": model, "stream": False}
    if forces:
        body["ignore_eos"] = True
    if form == "chat":
        body |= {"messages": [{"role": "user", "content": "hello"}], "max_completion_tokens": 1}
    else:
        body |= {"prompt": list(ids) if form == "tokens" else "hello", "max_tokens": 1}
    path = "/v1/chat/completions" if form == "chat" else "/v1/completions"
    try:
        response = await client.post(url + path, json=body, headers=PROBE_HEADERS, timeout=PROBE_TIMEOUT_S)
        answer = response.json()
    except httpx.HTTPError as error:
        return str(error) or type(error).__name__
    except ValueError:
        return f"HTTP {response.status_code}, no JSON"
    if response.status_code != 200:
        return f"HTTP {response.status_code}: {_said(answer)[:120]}"
    usage = answer.get("usage") if isinstance(answer, dict) else None
    counted = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    if form == "tokens" and counted != len(ids):
        return f"{len(ids)} token ids were counted as {counted}"
    return None


def _said(answer: Any) -> str:
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    return str(error.get("message", error) if isinstance(error, dict) else error)


async def _max_tokens(client: httpx.AsyncClient, url: str, card: dict[str, Any]) -> int | None:
    """vLLM's and Samovar's `max_model_len`, or llama.cpp's `n_ctx`."""
    stated = card.get("max_model_len")
    if isinstance(stated, int) and stated > 0:
        return stated
    try:
        props = (await client.get(f"{url}/props", timeout=PROBE_TIMEOUT_S)).json()
        stated = props["default_generation_settings"]["n_ctx"]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None
    return stated if isinstance(stated, int) and stated > 0 else None


async def _block_tokens(client: httpx.AsyncClient, url: str) -> int | None:
    try:
        page = (await client.get(f"{url}/metrics", timeout=PROBE_TIMEOUT_S)).text
    except httpx.HTTPError:
        return None
    found = _BLOCK_SIZE.search(page)
    return int(found[1]) if found and int(found[1]) > 0 else None
