"""What a request says of its session's future, wherever it says it, and the answer to that.

Hints that came in an envelope, or in Dynamo's words, are answered one by one in the answer's `kv_hints`. Fields that
every client of an API may send (`cache_control`, `prompt_cache_retention`) mean the same hints and are answered only
beside such, so that nobody gets a field that was not asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from samovar.policy.hints import Hint, HintAnswer
from samovar.serve.bodies import GenerationBody
from samovar.serve.hint_envelope import read_envelope
from samovar.serve.hint_fields import DYNAMO_PRIORITY, RETENTION_S, Asked, nvext_hints, time_s
from samovar.serve.session import Session, session_of


@dataclass(frozen=True, slots=True)
class Hints:
    session: Session
    asked: tuple[Asked, ...] = ()
    message_id: str | None = None
    told: bool = False
    """Whether the client is to be told what became of them."""

    @property
    def actions(self) -> tuple[Hint, ...]:
        """What the engine is asked."""
        return tuple(asked.hint for asked in self.asked if asked.hint is not None)

    @property
    def priority(self) -> int | None:
        """Of the request itself, where it is among the hints."""
        stated = (asked.hint for asked in self.asked if asked.name == DYNAMO_PRIORITY)
        return next((hint.count for hint in stated if hint is not None), None)

    def report(self, answers: Sequence[HintAnswer]) -> dict[str, Any]:
        """The `kv_hints` of an answer. `answers`: the engine's, one for each of `actions`."""
        left = iter(answers)
        told = [_told(asked, None if asked.hint is None else next(left, None)) for asked in self.asked]
        return {"message_id": self.message_id, "answers": told}


def hints_of(body: GenerationBody, headers: Mapping[str, str], marked_s: float | None = None) -> Hints:
    """`marked_s`: the longest time that marks inside the conversation ask for. Header names in lower case. Raises
    InvalidField."""
    session = session_of(body, headers)
    message_id: str | None = None
    asked: list[Asked] = []
    if body.kv_hints is not None:
        envelope = read_envelope(body.kv_hints, "kv_hints", session.id)
        message_id = envelope.message_id
        asked += envelope.asked
    asked += nvext_hints(body.nvext or {})
    told = body.kv_hints is not None or bool(asked)
    asked += _implied(body, headers, marked_s)
    return Hints(session, tuple(asked), message_id, told)


def _implied(body: GenerationBody, headers: Mapping[str, str], marked_s: float | None) -> Iterator[Asked]:
    """What fields of the APIs mean that were made for another kind of cache."""
    if marked_s is not None:
        yield Asked("cache_control", Hint("retain", marked_s))
    if body.prompt_cache_retention is not None:
        yield Asked("prompt_cache_retention", Hint("retain", RETENTION_S[body.prompt_cache_retention]))
    ttl = (body.prompt_cache_options or {}).get("ttl")
    if ttl is not None:
        path = "prompt_cache_options.ttl"
        yield Asked(path, Hint("retain", time_s(ttl, path)))
    if headers.get("x-dynamo-session-final", "").strip().lower() == "true":
        yield Asked("x-dynamo-session-final", Hint("release"))


def _told(asked: Asked, answer: HintAnswer | None) -> dict[str, Any]:
    told: dict[str, Any] = {"action": asked.name}
    if asked.id is not None:
        told["action_id"] = asked.id
    if asked.hint is None:
        return {**told, "status": "ignored", "reason": asked.why_not}
    if answer is None:
        return {**told, "status": "ignored", "reason": "the engine said nothing of it"}
    return {**told, "status": answer.status, "reason": answer.reason}
