"""Who is let into the host tier and who goes; estimates; and that the checks see."""

from __future__ import annotations

import pytest

from samovar.core.gate import blocks_to_load
from samovar.core.ports import Connector, Reserved
from samovar.kv.tiers import STALE_S, TieredConnector
from samovar.policy.lru import LRU
from tests.kv.tier_driver import A, B, C, Worth, driver


def test_it_is_a_connector() -> None:
    connector: Connector = TieredConnector(4, 4, LRU(), 10)
    assert connector.wake_at is None and connector.lookup(A, 0.0).shares == ()


def test_a_block_is_findable_once_its_transfer_was_reported_good() -> None:
    d = driver()
    wanted, place = d.store(A[:3], report=False)
    assert wanted == (0, 1, 2) and len(set(place.slots)) == 3
    assert d.has(A)["host"] == 0 and d.tiers.lookup(A, 0.0).num_blocks == 0
    d.done(1)
    assert d.has(A)["host"] == 3


def test_only_what_is_neither_there_nor_on_its_way_is_stored() -> None:
    d = driver()
    d.store(A[:2])
    d.store(A[:4], report=False)
    assert d.store(A[:6], report=False)[0] == (4, 5)
    assert d.store(A[:6], report=False)[0] == ()


def test_blocks_in_the_middle_of_a_lost_chain_are_not_stored() -> None:
    d = driver()
    assert d.store(A[:6], first=3) == ((), Reserved())
    assert d.store(A[:6])[0] == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
def test_reports_may_come_in_any_order(order: tuple[int, ...]) -> None:
    d = driver()
    for end in (2, 4, 6):
        d.store(A[:end], report=False)
    for transfer_id in order:
        d.done(transfer_id)
    assert d.has(A)["host"] == 6


def test_what_waited_for_a_failed_parent_is_given_up() -> None:
    d = driver()
    d.store(A[:2], report=False)
    d.store(A[:4], report=False)
    d.done(2)
    d.done(1, (1,), "io")
    assert d.has(A)["host"] == 1 and d.failed("host") == {"io": 1, "lost": 2}
    assert sum(d.tiers._host.pool.refs) == 0
    assert d.store(A[:4])[0] == (1, 2, 3)


def test_every_reservation_has_its_own_generation() -> None:
    d = driver(host=1)
    seen = {d.store(keys)[1] for keys in (A[:1], B[:1], C[:1])}
    assert len({place.generations for place in seen}) == 3 and {place.slots for place in seen} == {(0,)}


def test_lru_lets_every_store_in_and_the_longest_unused_tail_goes() -> None:
    d = driver(host=6)
    for now, keys in enumerate((A[:3], B[:3], A[:3])):
        d.now = float(now)
        d.store(keys)
        d.end_turn(keys)
    d.store(C[:2])
    assert (d.has(A)["host"], d.has(B)["host"], d.has(C)["host"]) == (3, 1, 2)


def test_a_store_never_evicts_what_is_worth_more() -> None:
    policy = Worth({"high": 2.0, "mid": 1.0, "low": 0.0})
    d = driver(host=6, policy=policy)
    d.store(A[:3], "high")
    d.store(B[:3], "low")
    assert d.store(C[:5], "mid")[0] == (0, 1, 2)
    assert (d.has(A)["host"], d.has(B)["host"], d.has(C)["host"]) == (3, 0, 3)
    assert d.store(B[:3], "low") == ((), Reserved())
    assert d.failed("host") == {"no_room": 5}


def test_a_store_does_not_evict_the_chain_it_follows() -> None:
    d = driver(host=4)
    d.store(A[:2])
    d.now = 5.0
    d.store(B[:2])
    assert d.store(A[:6])[0] == (2, 3)
    assert (d.has(A)["host"], d.has(B)["host"]) == (4, 0)


def test_a_chain_that_grows_is_in_use() -> None:
    """Its last block would be the next victim while the one after it is on its way."""
    d = driver(host=4)
    d.store(A[:1])
    d.now = 1.0
    d.store(B[:2])
    d.now = 2.0 + STALE_S
    d.store(A[:2], report=False)
    d.store(C[:1])
    d.done(3)
    assert (d.has(A)["host"], d.has(B)["host"], d.has(C)["host"]) == (2, 1, 1)


TOKENS, TOKEN_BYTES, PREFILL = 4000, 40_000, 8000.0


@pytest.mark.parametrize(("rate", "seconds", "loads"), [(500e6, 0.32, True), (200e6, 0.80, False)])
@pytest.mark.parametrize("tier", ["host", "disk"])
def test_gate_of_4000_tokens_of_40_kb(tier: str, rate: float, seconds: float, loads: bool) -> None:
    """Break-even is at 320 MB/s."""
    keys = [i.to_bytes(16, "big") for i in range(TOKENS // 16)]
    d = driver(300, 300, block_bytes=16 * TOKEN_BYTES, host_bytes_per_s=rate, disk_bytes_per_s=rate)
    if tier == "host":
        d.store(keys)
    else:
        d.tiers.restore(list(zip(keys, [b"", *keys], ["s"] * len(keys), strict=False)))
    (share,) = d.tiers.lookup(keys, 0.0).shares
    assert share.tier == tier and share.seconds == pytest.approx(seconds)
    assert blocks_to_load((share,), 16, PREFILL) == (len(keys) if loads else 0)


def test_loads_under_way_are_waited_for() -> None:
    d = driver(block_bytes=1000, host_bytes_per_s=1000.0)
    d.store(A[:4])
    d.store(B[:2])
    d.load(B[:2])
    assert d.tiers.lookup(A, 0.0).shares[0].seconds == pytest.approx(6.0)
    d.done(d.last)
    assert d.tiers.lookup(A, 0.0).shares[0].seconds == pytest.approx(4.0)


def test_measured_loads_change_the_estimate_of_their_tier() -> None:
    d = driver(300, 300, block_bytes=640_000, host_bytes_per_s=2e9, disk_bytes_per_s=1e9)
    keys = [i.to_bytes(2, "big") for i in range(250)]
    d.store(keys)
    d.load(keys)
    d.done(d.last, seconds=0.8)
    assert d.tiers.lookup(keys, 0.0).shares[0].seconds == pytest.approx(0.8, rel=0.1)
    assert d.tiers.restore_s(keys[0]) == pytest.approx(0.0032, rel=0.1)
    assert d.tiers.report()[1].bytes_per_s == 0.0, "nothing was read from it yet"
    assert d.tiers.restore_s(b"?") is None


def test_a_late_load_makes_its_tier_slower() -> None:
    d = driver(block_bytes=640_000, host_bytes_per_s=2e9)
    d.store(A)
    d.load(A)
    d.done(d.last, tuple(range(8)), "late", 10.0)
    assert d.tiers.lookup(A, 0.0).shares[0].seconds > 1.0


class Counting(tuple[bytes, ...]):
    """Counts how many keys are looked at."""

    looked = 0

    def __getitem__(self, at: object) -> object:
        Counting.looked += 1
        return tuple.__getitem__(self, at)  # type: ignore[index]


def test_a_lookup_of_a_long_chain_probes_a_few_keys_and_changes_nothing() -> None:
    d = driver(10_000, 10_000)
    keys = [i.to_bytes(2, "big") for i in range(8192)]
    d.store(keys[:5000])
    before = d.tiers.report(), d.tiers.wake_at
    match = d.tiers.lookup(Counting(keys), 1.0)
    assert match.num_blocks == 5000 and Counting.looked < 50
    assert (d.tiers.report(), d.tiers.wake_at) == before


def test_an_unknown_report_is_ignored() -> None:
    d = driver()
    d.done(17)
    d.done(-3, (0,), "io")


def test_check_sees_a_leaked_pin_and_a_lost_slot() -> None:
    d = driver()
    d.store(A[:2])
    d.tiers._host.hold(A[1])
    with pytest.raises(AssertionError, match="reference counts"):
        d.tiers.check()
    d = driver()
    d.store(A[:2], report=False)
    d.tiers._host._coming.clear()
    with pytest.raises(AssertionError, match="unknown"):
        d.tiers.check()


def test_what_a_block_on_its_way_follows_is_not_evicted_before_it_arrives() -> None:
    d = driver(host=4)
    d.store(A[:2])
    d.store(A[:3], first=2, report=False)
    arriving = d.last
    d.now = 1.0
    assert d.store(B[:3], "t")[0] == (0,), "the one slot that was free"
    d.done(arriving)
    assert d.has(A)["host"] == 3 and d.failed("host") == {"no_room": 2}
