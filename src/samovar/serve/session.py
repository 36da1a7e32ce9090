"""Which agent's conversation a request belongs to, from the many places clients put it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import json
import re

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.bodies import MAX_SESSION_CHARACTERS, SessionFields

_CLAUDE_CODE_USER = re.compile(r"_session_([0-9A-Za-z-]{1,64})$")


@dataclass(frozen=True, slots=True)
class Session:
    id: str = ""
    parent_id: str = ""
    shared: bool = False
    """Its id is a `prompt_cache_key`, which many conversations may have in common."""


def session_of(body: SessionFields, headers: Mapping[str, str]) -> Session:
    """The first source that names one wins. An unusable `session_id` in the body is the client's fault (InvalidField);
    in a header or a field meant for something else it is passed over. Header names in lower case.

    Claude Code names a session and, for sub-agents, an agent in it; each agent is a session of its own here. Codex's
    sub-agents share their root's `prompt_cache_key` and have a thread each.
    """
    parents = (
        _stated(body.parent_session_id, "parent_session_id"),
        headers.get("x-parent-session-id"),
        headers.get("x-dynamo-parent-session-id"),
        headers.get("x-codex-parent-thread-id"),
    )
    parent_id = _first_usable(parents)
    stated = _first_usable((_stated(body.session_id, "session_id"), headers.get("x-session-id")))
    if stated:
        return Session(stated, parent_id)
    user_id = (body.metadata or {}).get("user_id")
    claude = _first_usable(
        (headers.get("x-claude-code-session-id"), _from_user_id(user_id) if isinstance(user_id, str) else None)
    )
    if claude:
        return _agent(claude, parent_id, headers)
    thread = _first_usable((headers.get("thread-id"),))
    if not thread and (cache_key := _first_usable((body.prompt_cache_key,))):
        return Session(cache_key, parent_id, shared=True)
    others = (thread, headers.get("x-dynamo-session-id"), headers.get("x-correlation-id"))
    return Session(_first_usable(others), parent_id)


def usable_session(text: str) -> bool:
    return 0 < len(text) <= MAX_SESSION_CHARACTERS and text.isprintable()


def _agent(session_id: str, parent_id: str, headers: Mapping[str, str]) -> Session:
    """The agent that a Claude Code request is from: the main one has no id, and the parent of those it started is not
    named."""
    own = _in_session(session_id, headers.get("x-claude-code-agent-id"))
    if own == session_id:
        return Session(session_id, parent_id)
    return Session(own, parent_id or _in_session(session_id, headers.get("x-claude-code-parent-agent-id")))


def _in_session(session_id: str, agent_id: str | None) -> str:
    named = f"{session_id}/{agent_id}"
    return named if agent_id and usable_session(named) else session_id


def _first_usable(candidates: tuple[str | None, ...]) -> str:
    return next((c for c in candidates if c and usable_session(c)), "")


def _stated(value: str | None, name: str) -> str | None:
    if value and not usable_session(value):
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
