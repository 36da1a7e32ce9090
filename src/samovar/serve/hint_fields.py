"""Values inside hints, and the fields of other APIs and servers that mean one. Everything here raises InvalidField with
the path of the first fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
import math
import re
from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.policy.hints import Hint
from samovar.serve.hint_schema import INT32_MAX, INT32_MIN, MAX_ACTIONS, MAX_NAME_CHARACTERS
from samovar.serve.json_input import child

EPHEMERAL_S = 300.0
"""What `cache_control` asks for when it names no time."""
RETENTION_S = {"in_memory": 300.0, "in-memory": 300.0, "24h": 86_400.0}
"""Of `prompt_cache_retention`. OpenAI keeps what is only in memory for five to ten minutes."""
DYNAMO_PRIORITY = "nvext.agent_hints.priority"

_TIME = re.compile(r"([0-9]{1,9})([smh])")
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_UNUSED = {
    "strict_priority": "requests are ordered by priority alone; send priority",
    "osl": "output lengths are not planned for",
    "latency_sensitivity": "it has no effect here; send priority",
}
"""Hints of Dynamo that nothing follows from, and why."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One thing that a client asks for, by the name that the client has for it."""

    name: str
    hint: Hint | None = None
    """None: it is not passed on, and `why_not` says why."""
    why_not: str = ""
    id: str | None = None
    """The client's, of an action of an envelope."""


def seconds(value: object, path: str) -> float:
    found = _finite(value)
    if found is None or found < 0:
        raise InvalidField(f"{path}: must be a number of seconds, at least 0; got {shown(value)}.", param=path)
    return found


def time_s(value: object, path: str) -> float:
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidField(f"{path}: must be a time such as '5m' or '1h'; got {shown(value)}.", param=path)
    return int(found[1]) * _UNITS_S[found[2]]


def integer(value: object, path: str, least: int = INT32_MIN) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= INT32_MAX:
        raise InvalidField(f"{path}: must be an integer from {least} to {INT32_MAX}; got {shown(value)}.", param=path)
    return value


def cache_mark_s(mark: object, path: str) -> float:
    """The time that a `cache_control` asks for. What else may be in it (a scope) has no meaning here."""
    if not isinstance(mark, dict):
        raise InvalidField(f"{path}: must be an object; got {shown(mark)}.", param=path)
    if mark.get("type") != "ephemeral":
        where = child(path, "type")
        raise InvalidField(f"{where}: must be 'ephemeral'; got {shown(mark.get('type'))}.", param=where)
    ttl = mark.get("ttl")
    return EPHEMERAL_S if ttl is None else time_s(ttl, child(path, "ttl"))


def nvext_hints(nvext: Mapping[str, Any]) -> Iterator[Asked]:
    """Of Dynamo's `nvext`; its other fields are for a router."""
    hints, path = nvext.get("agent_hints"), "nvext.agent_hints"
    if hints is not None:
        if not isinstance(hints, dict):
            raise InvalidField(f"{path}: must be an object; got {shown(hints)}.", param=path)
        if len(hints) > MAX_ACTIONS:
            raise InvalidField(f"{path}: must have at most {MAX_ACTIONS} elements; got {len(hints)}.", param=path)
        for name, value in hints.items():
            asked = None if value is None else _agent_hint(name, value, child(path, name))
            if asked is not None:
                yield asked
    mark, path = nvext.get("cache_control"), "nvext.cache_control"
    if mark is not None:
        yield Asked(path, Hint("retain", seconds=cache_mark_s(mark, path)))


def _agent_hint(name: str, value: object, path: str) -> Asked | None:
    """None for one that asks for nothing."""
    match name:
        case "priority":
            # There, a higher number comes first.
            return Asked(DYNAMO_PRIORITY, Hint("priority", count=min(-integer(value, path), INT32_MAX)))
        case "speculative_prefill":
            if not isinstance(value, bool):
                raise InvalidField(f"{path}: must be true or false; got {shown(value)}.", param=path)
            return Asked(path, Hint("prefetch")) if value else None
        case "strict_priority" | "osl":
            integer(value, path, least=0)
        case "latency_sensitivity":
            if _finite(value) is None:
                raise InvalidField(f"{path}: must be a number; got {shown(value)}.", param=path)
        case _:
            return Asked(f"nvext.agent_hints.{name[:MAX_NAME_CHARACTERS]}", why_not="unknown hint")
    return Asked(path, why_not=_UNUSED[name])


def _finite(value: object) -> float | None:
    """None for what is no number, and for what no float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None
