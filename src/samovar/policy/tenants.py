"""What is learned of each tenant apart, so that nobody's traffic says what anybody else's blocks are worth.

There is no prior from everybody: whoever sends most would make it. A tenant of whom nothing is known stands where the
published statistics of `priors` put everyone.

Bounded: of the tenants that did something longest ago what was learned is forgotten. Tenants come from API keys, which
callers cannot make up, so nobody pushes out the others by calling himself many names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

MAX_TENANTS = 64
"""Some hundred kilobytes each, a few megabytes with as many tools as are remembered."""

T = TypeVar("T")


class PerTenant(Generic[T]):
    """One `T` for each tenant."""

    __slots__ = ("_all", "_make", "_most")

    def __init__(self, make: Callable[[], T], most: int = MAX_TENANTS) -> None:
        self._make = make
        self._most = most
        self._all: OrderedDict[str, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._all)

    def of(self, tenant: str) -> T:
        """A new one where nothing is known of the tenant. Only to be called where something happened: it is what says
        who is forgotten last."""
        found = self._all.get(tenant)
        if found is None:
            found = self._all[tenant] = self._make()
            if len(self._all) > self._most:
                self._all.popitem(last=False)
        self._all.move_to_end(tenant)
        return found

    def check(self) -> None:
        assert len(self._all) <= self._most
