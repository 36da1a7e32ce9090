"""A validated generation request: everything that the engine and the answer need, nothing left of the body.

It lives as long as the answer does, so a prompt is here once, as the engine takes it, unless the answer repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any
from uuid import uuid4

from samovar.core.request import Request
from samovar.policy.hints import HintAnswer
from samovar.serve.choice_text import Delta, TextOptions
from samovar.serve.hints import Hints
from samovar.serve.misses import Difference
from samovar.text.answer import Answer, OutputParser, merged


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
    parser: Callable[[], OutputParser] | None = None
    """Makes the parser of a choice's output; None: it is only text."""
    remember: Callable[[Sequence[int], Answer], None] | None = None
    """Told every complete output and what the client gets of it, so that it is known again as history."""
    nonce: str = field(default_factory=lambda: uuid4().hex)
    """What ids made for this answer are derived from: unique, also beyond a restart."""
    cache_report: bool = False
    """The client wants to know what the cache had of its prompt, and why no more."""
    difference: Difference | None = None
    """Where the prompt differs from the last one of its session."""
    hints: Hints | None = None
    """What its first request tells the engine of the session."""
    kv_hints: dict[str, Any] | None = None
    """What became of them, for the client that is told; see `accepted`."""

    def accepted(self, answers: Sequence[HintAnswer]) -> Job:
        """The same once the engine has taken it. `answers`: to the hints, one each."""
        if self.hints is None or not self.hints.told:
            return self
        return replace(self, kv_hints=self.hints.report(answers))

    def echo_of(self, index: int) -> str:
        return self.echo[index // self.n] if self.echo else ""

    def prompt_tokens_of(self, index: int) -> int:
        return self.prompt_tokens[index // self.n]

    def call_id(self, index: int, call: int) -> str:
        """Of tool call number `call` of choice `index`: the same while it streams and as a whole."""
        return f"call_{sha256(f'{self.nonce} {index} {call}'.encode()).hexdigest()[:24]}"

    def prompt_ids(self, index: int) -> list[int]:
        """Only where `return_token_ids` is set."""
        return self.returned_prompts[index // self.n]


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int = 0
    cache_report: dict[str, Any] | None = None
    """`misses.miss_report`, for the client that asked for it."""

    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }
        if self.reasoning_tokens:
            fields["completion_tokens_details"] = {"reasoning_tokens": self.reasoning_tokens}
        return fields


def joined(deltas: Sequence[Delta]) -> Delta:
    """A choice's deltas as one; the last carries the end."""
    last = deltas[-1]
    return Delta(
        "".join(delta.text for delta in deltas),
        tuple(token for delta in deltas for token in delta.token_ids),
        tuple(info for delta in deltas for info in delta.logprobs),
        last.finish_reason,
        last.stop_reason,
        merged([event for delta in deltas for event in delta.events]),
    )


def closing(job: Job, usage: Usage, *, whole: bool = False) -> dict[str, Any]:
    """What OpenAI's shapes say at the end beside the text: usage (always in a `whole` answer), the cache report, and
    in a `whole` answer what became of hints; a stream begins with that."""
    fields: dict[str, Any] = {}
    if whole or job.include_usage:
        fields["usage"] = usage.fields()
    if whole and job.kv_hints is not None:
        fields["kv_hints"] = job.kv_hints
    if usage.cache_report is not None:
        fields["cache_report"] = usage.cache_report
    return fields
