"""Log probabilities in the shapes of the two APIs."""

from __future__ import annotations

from collections.abc import Sequence
import math
from typing import Any

from samovar.serve.choice_text import TokenInfo

FLOOR = -9999.0
"""Stands for minus infinity, which JSON cannot write; the OpenAI API uses the same value."""


def chat_logprobs(infos: Sequence[TokenInfo]) -> dict[str, Any]:
    return {
        "content": [
            {**_entry(info.data, info.logprob), "top_logprobs": [_entry(data, value) for data, value in info.top]}
            for info in infos
        ],
        "refusal": None,
    }


def completion_logprobs(infos: Sequence[TokenInfo]) -> dict[str, Any]:
    """Parallel lists. Beyond the OpenAI API, `bytes` has each token's exact bytes, as the chat API has them."""
    tops: list[dict[str, float]] = []
    for info in infos:
        top: dict[str, float] = {}
        for data, value in (*info.top, (info.data, info.logprob)):
            # Halves of characters look alike as text: the likeliest keeps the name.
            top.setdefault(_text(data), _finite(value))
        tops.append(top)
    return {
        "tokens": [_text(info.data) for info in infos],
        "token_logprobs": [_finite(info.logprob) for info in infos],
        "top_logprobs": tops,
        "text_offset": [info.offset for info in infos],
        "bytes": [list(info.data) for info in infos],
    }


def _entry(data: bytes, logprob: float) -> dict[str, Any]:
    return {"token": _text(data), "logprob": _finite(logprob), "bytes": list(data)}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _finite(value: float) -> float:
    return value if math.isfinite(value) and value > FLOOR else FLOOR
