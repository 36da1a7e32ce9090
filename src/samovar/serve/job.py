"""A validated generation request: everything that the engine and the answer need, nothing left of the body.

It lives as long as the answer does, so a prompt is here once, as the engine takes it, unless the answer repeats it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from samovar.core.request import Request
from samovar.serve.choice_text import Delta, TextOptions


@dataclass(frozen=True, slots=True)
class Job:
    """Choice `i` belongs to prompt `i // n`."""

    id: str
    created_s: int
    model: str
    prompt_tokens: tuple[int, ...]
    """Length of each prompt."""
    n: int
    requests: tuple[Request, ...]
    text: TextOptions
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    returned_prompts: tuple[list[int], ...] = ()
    """Per prompt, its token ids; () unless `return_token_ids`."""
    echo: tuple[str, ...] = ()
    """Per prompt, the text to put before each of its choices; () for none."""

    def echo_of(self, index: int) -> str:
        return self.echo[index // self.n] if self.echo else ""

    def prompt_tokens_of(self, index: int) -> int:
        return self.prompt_tokens[index // self.n]

    def prompt_ids(self, index: int) -> list[int]:
        """Only where `return_token_ids` is set."""
        return self.returned_prompts[index // self.n]


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    def fields(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


def joined(deltas: Sequence[Delta]) -> Delta:
    """A choice's deltas as one; the last carries the end."""
    last = deltas[-1]
    return Delta(
        "".join(delta.text for delta in deltas),
        tuple(token for delta in deltas for token in delta.token_ids),
        tuple(info for delta in deltas for info in delta.logprobs),
        last.finish_reason,
        last.stop_reason,
    )
