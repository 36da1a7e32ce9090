"""Which agent's conversation a request belongs to, from the many places clients put it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import json
import re

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.bodies import MAX_SESSION_CHARACTERS, GenerationBody

_CLAUDE_CODE_USER = re.compile(r"_session_([0-9A-Za-z-]{1,64})$")


@dataclass(frozen=True, slots=True)
class Session:
    id: str = ""
    parent_id: str = ""


def session_of(body: GenerationBody, headers: Mapping[str, str]) -> Session:
    """The first source that names one wins. An unusable `session_id` in the body is the client's fault (InvalidField);
    in a header or a field meant for something else it is passed over. Header names in lower case."""
    user_id = (body.metadata or {}).get("user_id")
    candidates = (
        _stated(body.session_id, "session_id"),
        headers.get("x-session-id"),
        headers.get("x-claude-code-session-id"),
        _from_user_id(user_id) if isinstance(user_id, str) else None,
        body.prompt_cache_key,
        headers.get("x-dynamo-session-id"),
        headers.get("x-correlation-id"),
    )
    parents = (
        _stated(body.parent_session_id, "parent_session_id"),
        headers.get("x-parent-session-id"),
        headers.get("x-dynamo-parent-session-id"),
    )
    return Session(_first_usable(candidates), _first_usable(parents))


def _first_usable(candidates: tuple[str | None, ...]) -> str:
    return next((c for c in candidates if c and _usable(c)), "")


def _usable(text: str) -> bool:
    return len(text) <= MAX_SESSION_CHARACTERS and text.isprintable()


def _stated(value: str | None, name: str) -> str | None:
    if value and not _usable(value):
        raise InvalidField(f"{name}: must be printable; got {shown(value)}.", param=name)
    return value


def _from_user_id(user_id: str) -> str | None:
    """Claude Code writes `user_<hash>_account_<uuid>_session_<uuid>`, or JSON text with a `session_id`."""
    if user_id.startswith("{") and len(user_id) <= 4096:
        try:
            session = json.loads(user_id).get("session_id")
        except (ValueError, RecursionError):
            return None
        return session if isinstance(session, str) else None
    found = _CLAUDE_CODE_USER.search(user_id)
    return found[1] if found else None
