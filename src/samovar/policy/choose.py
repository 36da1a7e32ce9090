"""A retention policy by its name: one of ours, or anybody's.

Others are found as entry points of the group `samovar.retention_policies`; what the entry point names is called with
`capacity_blocks` (how many blocks the cache has that the policy orders first of all) and answers a `RetentionPolicy`:

    [project.entry-points."samovar.retention_policies"]
    mine = "my_package.retention:MyPolicy"
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
import logging
from typing import cast

from samovar.base.errors import ConfigError
from samovar.policy.agent import AgentPolicy
from samovar.policy.contained import Contained, Told
from samovar.policy.lru import LRU
from samovar.policy.retention import RetentionPolicy
from samovar.policy.ttl import TTL

_log = logging.getLogger(__name__)

GROUP = "samovar.retention_policies"
_OURS: dict[str, Callable[[int], RetentionPolicy]] = {
    "lru": lambda capacity_blocks: LRU(),
    "ttl": lambda capacity_blocks: TTL(),
    "agent": AgentPolicy,
}
_METHODS = ("value", "turn_started", "turn_ended", "outcome", "hinted", "outlook")


def choose(name: str, capacity_blocks: int, told: Told = _log.warning) -> RetentionPolicy:
    """A new one. Raises ConfigError for an unknown name, and for one that cannot be loaded. `told`: of the first fault
    of one that is not ours, which then goes on as LRU."""
    if name in _OURS:
        return _OURS[name](capacity_blocks)
    found = _installed().get(name)
    if found is None:
        raise ConfigError(f"retention policy {name!r} is not known; there are {', '.join(policy_names())}")
    return Contained(_made(found, capacity_blocks), name, told)


def policy_names() -> tuple[str, ...]:
    return (*_OURS, *sorted(set(_installed()) - set(_OURS)))


def _installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _made(entry: EntryPoint, capacity_blocks: int) -> RetentionPolicy:
    """Somebody else's code: whatever it raises is told as what it is."""
    try:
        policy = entry.load()(capacity_blocks=capacity_blocks)
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"retention policy {entry.name!r} ({entry.value}) cannot be loaded: {told}; others are "
            f"{', '.join(other for other in policy_names() if other != entry.name)}"
        ) from error
    lacks = [method for method in _METHODS if not callable(getattr(policy, method, None))]
    lacks += [
        field for field, kind in (("name", str), ("sample", int)) if not isinstance(getattr(policy, field, 0.0), kind)
    ]
    if lacks:
        raise ConfigError(f"retention policy {entry.name!r} ({entry.value}) has no {', '.join(lacks)}")
    return cast(RetentionPolicy, policy)
