"""Finished and running responses, kept for a while: bounded in number and in bytes, for each tenant and in all.

A response that continues another shares what came before it, so a conversation of many turns is kept once, and stays
whole when its older responses are dropped. Whoever is not the owner gets the same answer as for an unknown id.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
import json
import threading
from typing import Any

import msgspec

from samovar.serve.config import StoreLimits

_ITEM_ID_BYTES = 200
"""What an id takes in the index, roughly."""
_encode = msgspec.json.Encoder().encode


def encoded(items: Sequence[Any]) -> bytes:
    """Items as a segment keeps them: a JSON array."""
    return _encode(items)


@dataclass(slots=True, eq=False)
class Segment:
    """Items of one response, after those of the one it continues. Immutable but for the store's count."""

    parent: Segment | None
    input_items: bytes
    output_items: bytes
    """JSON arrays."""
    chain_bytes: int
    """Of this and all before."""
    users: int = 0
    """Kept responses and segments that need it; 0: it is not counted."""

    @staticmethod
    def of(parent: Segment | None, inputs: bytes, outputs: Sequence[Any]) -> Segment:
        """`inputs`: already `encoded`, since they may be long."""
        made = Segment(parent, inputs, encoded(outputs), parent.chain_bytes if parent else 0)
        made.chain_bytes += made.num_bytes
        return made

    @property
    def num_bytes(self) -> int:
        return len(self.input_items) + len(self.output_items)

    def inputs(self) -> list[Any]:
        items: list[Any] = json.loads(self.input_items)
        return items

    def history(self) -> list[Any]:
        """All items, from the beginning of the conversation."""
        chain = list(self.chain())
        parts = [part for segment in reversed(chain) for part in (segment.input_items, segment.output_items)]
        return [item for part in parts for item in json.loads(part)]

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
        """Keeps a finished response; for it others go, the longest unused first. False when it is too large itself,
        or was dropped while it ran."""
        most = min(self._limits.max_tenant_bytes, self._limits.max_bytes)
        with self._lock:
            owner = self._tenants.get(tenant)
            if owner is None or owner.running.pop(id, None) is None:
                return False
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

    def items(self, tenant: str, item_ids: Collection[str]) -> dict[str, dict[str, Any]]:
        """By id, those that are output items of the tenant's finished responses. Every response is read once, however
        many of its items are wanted."""
        wanted: dict[str, Segment] = {}
        with self._lock:
            owner = self._tenants.get(tenant)
            responses = {owner.items[item_id] for item_id in item_ids if item_id in owner.items} if owner else set()
            for id in responses:
                stored = self._use(tenant, id)
                if stored is not None:
                    wanted[id] = stored.segment
        asked = set(item_ids)
        outputs = (item for segment in wanted.values() for item in json.loads(segment.output_items))
        return {item["id"]: item for item in outputs if item["id"] in asked}

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
            self._count(owner, segment.num_bytes)

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
            self._count(owner, -segment.num_bytes)

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
                expected += sum(segment.num_bytes for segment in segments.values())
                assert owner.num_bytes == expected, f"{owner.num_bytes} bytes counted, {expected} kept"
                assert owner.num_bytes <= self._limits.max_tenant_bytes
                assert set(owner.items.values()) <= set(owner.stored)
            assert self.num_bytes == sum(owner.num_bytes for owner in self._tenants.values())
            assert self.num_bytes <= self._limits.max_bytes
            assert len(self._order) == sum(len(owner.stored) for owner in self._tenants.values())
            assert len(self._order) <= self._limits.max_responses
