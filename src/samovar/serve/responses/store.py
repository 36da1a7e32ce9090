"""Finished and running responses, kept for a while: bounded in number and in bytes, for each tenant and in all.

A response that continues another shares what came before it, so a conversation of many turns is kept once, and stays
whole when its older responses are dropped. Whoever is not the owner gets the same answer as for an unknown id.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
import json
import threading
from typing import Any

import msgspec

from samovar.base.errors import ConfigError

_ITEM_ID_BYTES = 200
"""What an id takes in the index, roughly."""
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Raises ConfigError for values that cannot work."""

    max_responses: int = 1000
    """0 keeps none."""
    max_bytes: int = 256 << 20
    max_tenant_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name, value in (
            ("--max-stored-responses", self.max_responses),
            ("--max-stored-response-bytes", self.max_bytes),
            ("max_tenant_bytes", self.max_tenant_bytes),
        ):
            if value < 0:
                raise ConfigError(f"{name} is {value}; it must be at least 0")


@dataclass(slots=True, eq=False)
class Segment:
    """Items of one response, after those of the one it continues. Immutable but for the store's count."""

    parent: Segment | None
    items: bytes
    """JSON array: input and output."""
    num_inputs: int
    """The first of them are the input."""
    chain_bytes: int
    """Of this and all before."""
    users: int = 0
    """Kept responses and segments that need it; 0: it is not counted."""

    @staticmethod
    def of(parent: Segment | None, inputs: Sequence[Any], outputs: Sequence[Any]) -> Segment:
        items = _encode([*inputs, *outputs])
        return Segment(parent, items, len(inputs), len(items) + (parent.chain_bytes if parent else 0))

    def inputs(self) -> list[Any]:
        items: list[Any] = json.loads(self.items)
        return items[: self.num_inputs]

    def history(self) -> list[Any]:
        """All items, from the beginning of the conversation."""
        chain = list(self.chain())
        return [item for segment in reversed(chain) for item in json.loads(segment.items)]

    def chain(self) -> Iterator[Segment]:
        """Backwards, from this one."""
        segment: Segment | None = self
        while segment is not None:
            yield segment
            segment = segment.parent


@dataclass(frozen=True, slots=True)
class Running:
    """A response that is being generated."""

    snapshot: Callable[[], dict[str, Any]]
    """The response object as it stands."""
    cancel: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Stored:
    response: bytes
    """The response object, in JSON."""
    segment: Segment
    item_ids: tuple[str, ...]
    """Of its output."""

    @staticmethod
    def of(response: dict[str, Any], segment: Segment) -> Stored:
        return Stored(_encode(response), segment, tuple(item["id"] for item in response["output"]))

    @property
    def own_bytes(self) -> int:
        return len(self.response) + _ITEM_ID_BYTES * len(self.item_ids)


@dataclass(slots=True)
class _Tenant:
    running: dict[str, Running] = field(default_factory=dict)
    stored: OrderedDict[str, Stored] = field(default_factory=OrderedDict)
    """Least recently used first."""
    items: dict[str, str] = field(default_factory=dict)
    """By an output item's id, its response's."""
    num_bytes: int = 0


class ResponseStore:
    """May be used from several threads."""

    def __init__(self, limits: StoreLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._tenants: dict[str, _Tenant] = {}
        self._order: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Every tenant's finished responses, least recently used first."""
        self.num_bytes = 0

    def begin(self, tenant: str, id: str, running: Running) -> None:
        """It is not dropped until it ends: by `complete` or `forget`."""
        with self._lock:
            self._tenants.setdefault(tenant, _Tenant()).running[id] = running

    def complete(self, tenant: str, id: str, stored: Stored) -> bool:
        """Keeps a finished response; for it others go, the longest unused first. False when it is too large itself."""
        most = min(self._limits.max_tenant_bytes, self._limits.max_bytes)
        with self._lock:
            owner = self._tenants.setdefault(tenant, _Tenant())
            owner.running.pop(id, None)
            fits = self._limits.max_responses > 0 and stored.segment.chain_bytes + stored.own_bytes <= most
            if fits:
                self._add(tenant, owner, id, stored)
                self._make_room(tenant, owner)
            self._tidy(tenant)
            return fits

    def forget(self, tenant: str, id: str) -> bool:
        """Drops a response, running or finished. False when there is none."""
        with self._lock:
            owner = self._tenants.get(tenant)
            if owner is None:
                return False
            found = owner.running.pop(id, None) is not None
            if id in owner.stored:
                found = True
                self._drop(tenant, owner, id)
            self._tidy(tenant)
            return found

    def running(self, tenant: str, id: str) -> Running | None:
        with self._lock:
            owner = self._tenants.get(tenant)
            return owner.running.get(id) if owner else None

    def stored(self, tenant: str, id: str) -> Stored | None:
        """It counts as used. What it holds stays readable, whatever is dropped later."""
        with self._lock:
            return self._use(tenant, id)

    def item(self, tenant: str, item_id: str) -> dict[str, Any] | None:
        """An output item of one of the tenant's finished responses."""
        with self._lock:
            owner = self._tenants.get(tenant)
            id = owner.items.get(item_id) if owner else None
            stored = None if id is None else self._use(tenant, id)
        output = json.loads(stored.response)["output"] if stored else []
        return next((item for item in output if item["id"] == item_id), None)

    @property
    def num_stored(self) -> int:
        return len(self._order)

    def _use(self, tenant: str, id: str) -> Stored | None:
        owner = self._tenants.get(tenant)
        stored = owner.stored.get(id) if owner else None
        if owner is not None and stored is not None:
            owner.stored.move_to_end(id)
            self._order.move_to_end((tenant, id))
        return stored

    def _add(self, tenant: str, owner: _Tenant, id: str, stored: Stored) -> None:
        owner.stored[id] = stored
        self._order[tenant, id] = None
        owner.items.update(dict.fromkeys(stored.item_ids, id))
        self._count(owner, stored.own_bytes)
        for segment in stored.segment.chain():
            segment.users += 1
            if segment.users > 1:
                break
            self._count(owner, len(segment.items))

    def _drop(self, tenant: str, owner: _Tenant, id: str) -> None:
        stored = owner.stored.pop(id)
        del self._order[tenant, id]
        for item_id in stored.item_ids:
            owner.items.pop(item_id, None)
        self._count(owner, -stored.own_bytes)
        for segment in stored.segment.chain():
            segment.users -= 1
            if segment.users:
                break
            self._count(owner, -len(segment.items))

    def _count(self, owner: _Tenant, num_bytes: int) -> None:
        owner.num_bytes += num_bytes
        self.num_bytes += num_bytes

    def _make_room(self, tenant: str, owner: _Tenant) -> None:
        while owner.num_bytes > self._limits.max_tenant_bytes:
            self._drop(tenant, owner, next(iter(owner.stored)))
        while self.num_bytes > self._limits.max_bytes or len(self._order) > self._limits.max_responses:
            other, id = next(iter(self._order))
            self._drop(other, self._tenants[other], id)
            if other != tenant:
                self._tidy(other)

    def _tidy(self, tenant: str) -> None:
        owner = self._tenants[tenant]
        if not owner.running and not owner.stored:
            del self._tenants[tenant]

    def check(self) -> None:
        """Recomputes everything that is counted."""
        with self._lock:
            for tenant, owner in self._tenants.items():
                assert owner.running or owner.stored, f"nothing is left of tenant {tenant!r}"
                segments = {id(each): each for kept in owner.stored.values() for each in kept.segment.chain()}
                expected = sum(kept.own_bytes for kept in owner.stored.values())
                expected += sum(len(segment.items) for segment in segments.values())
                assert owner.num_bytes == expected, f"{owner.num_bytes} bytes counted, {expected} kept"
                assert owner.num_bytes <= self._limits.max_tenant_bytes
                assert set(owner.items.values()) <= set(owner.stored)
            assert self.num_bytes == sum(owner.num_bytes for owner in self._tenants.values())
            assert self.num_bytes <= self._limits.max_bytes
            assert len(self._order) == sum(len(owner.stored) for owner in self._tenants.values())
            assert len(self._order) <= self._limits.max_responses
