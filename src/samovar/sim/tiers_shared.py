"""One pool of host memory and disk for all ranks of a machine: one connector, of which each rank has a view.

A view keeps the ranks apart where the connector expects one core: ids of transfers, which every core counts from 0, and
names of streams. Everything else is shared: what one rank stored another finds, and whoever plans next hands out the
moves. The connector's queue of loads is everybody's, though each rank has a link of its own: it may expect a load to
take longer than it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from samovar.base.ids import BlockKey, TransferId
from samovar.core.plan import Move, TransferDone
from samovar.core.ports import Connector, Reserved, TierMatch
from samovar.core.stats import TierReport
from samovar.policy.agent import SUPERSEDED, TierOrder, order_for
from samovar.policy.order_only import OrderOnly
from samovar.policy.retention import Leaf, RetentionPolicy

_SEPARATOR = ":"


class RankView:
    """`core.ports.Connector` of rank `rank` of `num_ranks`."""

    def __init__(self, connector: Connector, rank: int, num_ranks: int) -> None:
        self._connector = connector
        self._rank = rank
        self._num_ranks = num_ranks

    def lookup(self, keys: Sequence[BlockKey], now: float) -> TierMatch:
        return self._connector.lookup(keys, now)

    def load(self, transfer_id: TransferId, keys: Sequence[BlockKey], now: float) -> Reserved:
        return self._connector.load(self._outer(transfer_id), keys, now)

    def store(
        self, transfer_id: TransferId, keys: Sequence[BlockKey], parent: BlockKey, stream: str, now: float
    ) -> tuple[tuple[int, ...], Reserved]:
        return self._connector.store(self._outer(transfer_id), keys, parent, self._named(stream), now)

    def moves(self, now: float) -> Sequence[Move]:
        return self._connector.moves(now)

    def transferred(self, done: TransferDone, now: float) -> None:
        outer = TransferDone(self._outer(done.transfer_id), done.failed, done.reason, done.seconds)
        self._connector.transferred(outer, now)

    def restore_s(self, key: BlockKey) -> float | None:
        return self._connector.restore_s(key)

    def wanted(self, keys: Sequence[BlockKey], now: float) -> None:
        self._connector.wanted(keys, now)

    def turn_ended(self, stream: str, keys: Sequence[BlockKey], *, keep: bool, now: float) -> None:
        self._connector.turn_ended(self._named(stream), keys, keep=keep, now=now)

    def distrust(self, keys: Sequence[BlockKey], now: float) -> None:
        self._connector.distrust(keys, now)

    @property
    def wake_at(self) -> float | None:
        return self._connector.wake_at

    def report(self) -> tuple[TierReport, ...]:
        """The first rank's is of all, the others report nothing: so sums over ranks are right."""
        return () if self._rank else self._connector.report()

    def blocks_of(self, keys: Sequence[BlockKey]) -> dict[str, int]:
        return self._connector.blocks_of(keys)

    def check(self) -> None:
        self._connector.check()

    def _outer(self, transfer_id: TransferId) -> TransferId:
        """Moves have negative ids, which are the connector's own."""
        if transfer_id < 0:
            return transfer_id
        return TransferId(transfer_id * self._num_ranks + self._rank)

    def _named(self, stream: str) -> str:
        return f"{self._rank}{_SEPARATOR}{stream}"


class SharedOrder(OrderOnly):
    """`RetentionPolicy` of what several ranks keep together: each stream's value is what the policy of its rank says.
    Learns nothing by itself. Values of policies that let LRU decide cannot be compared with the others': as long as one
    of them does, all go by recency."""

    why_no_hints: ClassVar[str] = "hints are told to the policies of the ranks"

    def __init__(self, orders: Sequence[RetentionPolicy]) -> None:
        self._orders = tuple(orders)

    @property
    def name(self) -> str:
        return self._orders[0].name

    @property
    def sample(self) -> int:
        return self._orders[0].sample

    def value(self, leaf: Leaf, now: float) -> float:
        if any(isinstance(order, TierOrder) and not order.trusted for order in self._orders):
            return SUPERSEDED if leaf.superseded else leaf.last_used_s
        rank, _, stream = leaf.stream.partition(_SEPARATOR)
        return self._orders[int(rank or 0)].value(replace(leaf, stream=stream), now)


def shared_order(policies: Sequence[RetentionPolicy], capacity_blocks: int) -> SharedOrder:
    """Each rank's guard watches over its equal share of the capacity."""
    share = capacity_blocks // len(policies)
    return SharedOrder([order_for(policy, share) for policy in policies])
