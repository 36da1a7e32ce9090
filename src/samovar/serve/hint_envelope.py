"""The `kv_hints` envelope: a message with actions on one session.

Two spellings are read. The short one has an action's parameters beside its name: `{"action": "retain", "ttl_s": 300}`.
The other is that of vLLM's and SGLang's engines (RFCs 53421 and 36224, version "0.1"): `{"action_id", "action_type":
"kv.retain", "action_version": "1.0", "payload": {...}}`. What an action asks for may be unknown here, and is then
answered as ignored; an envelope that cannot be read is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.policy.hints import Bound, Hint
from samovar.serve.hint_fields import Asked, integer, seconds, time_s
from samovar.serve.hint_schema import MAX_ACTIONS, MAX_ID_CHARACTERS, MAX_NAME_CHARACTERS
from samovar.serve.json_input import child

VERSION = 1
_VERSIONS = (VERSION, "0.1")
_ACTION_VERSION = "1."
_BOUNDS = ("exact", "at_most", "at_least")
_MAX_DIRECTIVES = 128
_FOR_EVER_S = 1e9


@dataclass(frozen=True, slots=True)
class Envelope:
    message_id: str | None
    asked: tuple[Asked, ...]


def read_envelope(given: Mapping[str, Any], path: str, session_id: str) -> Envelope:
    """`path`: of the envelope in the body, "" when it is the body. Raises InvalidField with the path of the first
    fault."""
    version = given.get("protocol_version")
    if version is not None and (isinstance(version, bool) or version not in _VERSIONS):
        where = child(path, "protocol_version")
        raise InvalidField(f"{where}: must be {VERSION}; got {shown(version)}.", param=where)
    message_id = _short(given, "message_id", path, MAX_ID_CHARACTERS)
    actions, where = given.get("actions"), child(path, "actions")
    if actions is None:
        raise InvalidField(f"{where}: this field is required.", param=where)
    if not isinstance(actions, list):
        raise InvalidField(f"{where}: must be an array; got {shown(actions)}.", param=where)
    if len(actions) > MAX_ACTIONS:
        raise InvalidField(f"{where}: must have at most {MAX_ACTIONS} elements; got {len(actions)}.", param=where)
    return Envelope(message_id, tuple(_action(it, child(where, at), session_id) for at, it in enumerate(actions)))


def _action(given: object, path: str, session_id: str) -> Asked:
    if not isinstance(given, dict):
        raise InvalidField(f"{path}: must be an object; got {shown(given)}.", param=path)
    key = "action" if given.get("action") is not None or given.get("action_type") is None else "action_type"
    name = _short(given, key, path, MAX_NAME_CHARACTERS)
    if not name:
        where = child(path, key)
        raise InvalidField(f"{where}: this field is required.", param=where)
    id = _short(given, "action_id", path, MAX_ID_CHARACTERS)
    version = _short(given, "action_version", path, MAX_NAME_CHARACTERS)
    read = _READERS.get(name.removeprefix("kv."))
    if read is None:
        return Asked(name, None, "unknown action", id)
    if version is not None and not f"{version}.".startswith(_ACTION_VERSION):
        return Asked(name, None, f"version {version} of this action is not known, {_ACTION_VERSION}0 is", id)
    parameters, where = _parameters(given, path)
    whose = _short(parameters, "session_id", where, MAX_ID_CHARACTERS)
    if whose is not None and whose != session_id:
        return Asked(name, None, "it names another session than the request does", id)
    hint = read(parameters, where)
    return Asked(name, hint, "" if hint is not None else "no directive has a priority above 0", id)


def _parameters(given: Mapping[str, Any], path: str) -> tuple[Mapping[str, Any], str]:
    payload = given.get("payload")
    if payload is None:
        return given, path
    where = child(path, "payload")
    if not isinstance(payload, dict):
        raise InvalidField(f"{where}: must be an object; got {shown(payload)}.", param=where)
    return payload, where


def _retain(given: Mapping[str, Any], path: str) -> Hint | None:
    """None when nothing of the session is to be kept."""
    directives = given.get("directives")
    if directives is not None:
        longest = max(_directives(directives, child(path, "directives")), default=None)
        return None if longest is None else Hint("retain", longest)
    ttl = given.get("ttl")
    if ttl is not None:
        return Hint("retain", time_s(ttl, child(path, "ttl")))
    return Hint("retain", _seconds(given, path, "ttl_s", "seconds", "duration"))


def _directives(given: object, path: str) -> Iterator[float]:
    """How long the ranges that vLLM's `kv.retain` protects are to be kept. Where they lie does not matter: a session is
    kept as a whole."""
    if not isinstance(given, list):
        raise InvalidField(f"{path}: must be an array; got {shown(given)}.", param=path)
    if len(given) > _MAX_DIRECTIVES:
        raise InvalidField(f"{path}: must have at most {_MAX_DIRECTIVES} elements; got {len(given)}.", param=path)
    for at, directive in enumerate(given):
        where = child(path, at)
        if not isinstance(directive, dict):
            raise InvalidField(f"{where}: must be an object; got {shown(directive)}.", param=where)
        priority = integer(directive.get("priority"), child(where, "priority"), least=0)
        duration = directive.get("duration")
        kept_s = _FOR_EVER_S if duration is None else seconds(duration, child(where, "duration"))
        if priority:
            yield kept_s


def _resume_in(given: Mapping[str, Any], path: str) -> Hint:
    bound = given.get("bound")
    if bound is None:
        bound = "exact"
    if bound not in _BOUNDS:
        where = child(path, "bound")
        raise InvalidField(f"{where}: must be 'exact', 'at_most' or 'at_least'; got {shown(bound)}.", param=where)
    return Hint("resume_in", _seconds(given, path, "seconds"), bound=cast(Bound, bound))


def _priority(given: Mapping[str, Any], path: str) -> Hint:
    return Hint("priority", count=integer(*_required(given, path, "value", "priority")))


def _children(given: Mapping[str, Any], path: str) -> Hint:
    return Hint("children", count=integer(*_required(given, path, "count"), least=0))


_READERS: dict[str, Callable[[Mapping[str, Any], str], Hint | None]] = {
    "retain": _retain,
    "pin": _retain,
    "resume_in": _resume_in,
    "release": lambda given, path: Hint("release"),
    "deref": lambda given, path: Hint("release"),
    "demote": lambda given, path: Hint("demote"),
    "prefetch": lambda given, path: Hint("prefetch"),
    "priority": _priority,
    "children": _children,
}
"""By name, without "kv." before it. There are no pins here: what asks for one is kept as long as it may be."""


def _seconds(given: Mapping[str, Any], path: str, *names: str) -> float:
    return seconds(*_required(given, path, *names))


def _required(given: Mapping[str, Any], path: str, *names: str) -> tuple[object, str]:
    """The first of the names that is given, and its path."""
    for name in names:
        if given.get(name) is not None:
            return given[name], child(path, name)
    where = child(path, names[0])
    raise InvalidField(f"{where}: this field is required.", param=where)


def _short(given: Mapping[str, Any], key: str, path: str, most: int) -> str | None:
    value = given.get(key)
    if value is None:
        return None
    where = child(path, key)
    if not isinstance(value, str):
        raise InvalidField(f"{where}: must be a string; got {shown(value)}.", param=where)
    if len(value) > most:
        raise InvalidField(f"{where}: must have at most {most} characters; got {len(value)}.", param=where)
    return value
