"""What is kept, for how long, and for whom."""

from __future__ import annotations

import time
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
import pytest

from samovar.base.errors import ConfigError
from samovar.serve.config import StoreLimits
from samovar.serve.responses.store import ResponseStore, Running, Segment, Stored, encoded


def stored(id: str, parent: Segment | None = None, size: int = 0) -> Stored:
    output = [{"id": f"msg_{id}", "type": "message"}]
    segment = Segment.of(parent, encoded([{"id": f"in_{id}", "content": "x" * size}]), output)
    return Stored.of({"id": id, "output": output}, segment)


def running() -> Running:
    return Running(lambda: {"status": "in_progress"}, lambda: None)


def keep(store: ResponseStore, tenant: str, id: str, made: Stored) -> bool:
    store.begin(tenant, id, running())
    return store.complete(tenant, id, made)


def test_the_oldest_goes() -> None:
    store = ResponseStore(StoreLimits(max_responses=1000))
    sizes = []
    for at in range(3001):
        assert keep(store, "", f"r{at:05}", stored(f"r{at:05}"))
        sizes.append(store.num_bytes)
    assert len(set(sizes[999:])) == 1, "memory is flat once it is full"
    assert store.stored("", "r02000") is None and not store.items("", ["msg_r02000"])
    assert store.stored("", "r02001") is not None and store.stored("", "r03000") is not None
    store.check()


def test_used_ones_stay() -> None:
    store = ResponseStore(StoreLimits(max_responses=2))
    for id in "ab":
        keep(store, "", id, stored(id))
    assert store.stored("", "a") is not None
    keep(store, "", "c", stored("c"))
    assert store.stored("", "b") is None and store.stored("", "a") is not None


def test_running_ones_are_never_dropped() -> None:
    store = ResponseStore(StoreLimits(max_responses=2))
    for at in range(10):
        store.begin("", f"run{at}", running())
        keep(store, "", f"done{at}", stored(f"done{at}"))
    assert all(store.running("", f"run{at}") for at in range(10))
    assert [at for at in range(10) if store.stored("", f"done{at}")] == [8, 9]
    assert store.complete("", "run0", stored("run0"))
    assert store.running("", "run0") is None and store.stored("", "run0") is not None
    store.check()


def test_a_conversation_is_kept_once_and_whole() -> None:
    store = ResponseStore(StoreLimits(max_responses=3))
    segment = None
    for at in range(50):
        one = stored(f"r{at}", segment, size=1000)
        keep(store, "", f"r{at}", one)
        segment = one.segment
    store.check()
    assert store.stored("", "r0") is None
    last = store.stored("", "r49")
    assert last is not None and [item["id"] for item in last.segment.history()] == [
        id for at in range(50) for id in (f"in_r{at}", f"msg_r{at}")
    ]
    assert 50_000 < store.num_bytes < 60_000
    for at in (47, 48, 49):
        assert store.forget("", f"r{at}")
    assert store.num_bytes == 0


def test_bytes_of_a_tenant() -> None:
    store = ResponseStore(StoreLimits(max_bytes=10_000, max_tenant_bytes=4000))
    keep(store, "other", "o", stored("o", size=1000))
    for at in range(10):
        assert keep(store, "", f"r{at}", stored(f"r{at}", size=1000))
    assert [at for at in range(10) if store.stored("", f"r{at}")] == [7, 8, 9]
    assert store.stored("other", "o") is not None, "another tenant's use costs it nothing"
    assert not keep(store, "", "big", stored("big", size=5000)) and store.stored("", "big") is None
    assert store.stored("", "r9") is not None, "what cannot be kept makes no room for itself"
    store.check()


def test_bytes_in_all() -> None:
    store = ResponseStore(StoreLimits(max_bytes=6000, max_tenant_bytes=4000))
    for at in range(20):
        keep(store, f"t{at}", "r", stored(f"r{at}", size=1000))
        store.check()
    assert [at for at in range(20) if store.stored(f"t{at}", "r")] == [16, 17, 18, 19]


def test_tenants_do_not_see_each_other() -> None:
    store = ResponseStore(StoreLimits())
    keep(store, "a", "r", stored("r"))
    store.begin("a", "s", running())
    assert store.stored("b", "r") is None and store.running("b", "s") is None
    assert not store.items("b", ["msg_r"]) and list(store.items("a", ["msg_r"])) == ["msg_r"]
    assert not store.forget("b", "r") and not store.forget("b", "s")
    assert store.stored("a", "r") is not None


def test_none_are_kept() -> None:
    store = ResponseStore(StoreLimits(max_responses=0))
    assert not keep(store, "", "r", stored("r"))
    assert store.running("", "r") is None and store.num_bytes == 0
    store.check()


def test_what_was_dropped_while_it_ran_stays_away() -> None:
    store = ResponseStore(StoreLimits())
    keep(store, "", "other", stored("other"))
    store.begin("", "r", running())
    assert store.forget("", "r")
    assert not store.complete("", "r", stored("r"))
    assert store.stored("", "r") is None and store.stored("", "other") is not None
    store.check()


def test_many_items_of_one_response_are_read_at_once() -> None:
    store = ResponseStore(StoreLimits())
    output = [{"id": f"msg_{at}", "text": "x" * 500} for at in range(4000)]
    keep(store, "", "r", Stored.of({"id": "r", "output": output}, Segment.of(None, encoded([]), output)))
    begun = time.process_time()
    found = store.items("", [*(item["id"] for item in output), "unknown"])
    assert time.process_time() - begun < 3, "to read the response for each would take a minute"
    assert list(found.values()) == output


def test_limits() -> None:
    with pytest.raises(ConfigError, match="--max-stored-responses is -1"):
        StoreLimits(max_responses=-1)


class Histories(RuleBasedStateMachine):
    """Against lists: everything that is found has the history it was made with."""

    def __init__(self) -> None:
        super().__init__()
        self.store = ResponseStore(StoreLimits(max_responses=6, max_bytes=6000, max_tenant_bytes=4000))
        self.histories: dict[tuple[str, str], list[str]] = {}
        self.runs: set[tuple[str, str]] = set()
        self.count = 0

    tenants = st.sampled_from("ab")

    @rule(tenant=tenants, size=st.integers(0, 1500), data=st.data())
    def answer(self, tenant: str, size: int, data: Any) -> None:
        id = f"r{self.count}"
        self.count += 1
        before = data.draw(st.sampled_from([None, *[known for owner, known in self.histories if owner == tenant]]))
        parent = self.store.stored(tenant, before) if before else None
        history = self.histories[tenant, before] if parent and before else []
        keep(self.store, tenant, id, stored(id, parent.segment if parent else None, size))
        self.histories[tenant, id] = [*history, f"in_{id}", f"msg_{id}"]

    @rule(tenant=tenants)
    def begin(self, tenant: str) -> None:
        id = f"run{self.count}"
        self.count += 1
        self.store.begin(tenant, id, running())
        self.runs.add((tenant, id))

    @precondition(lambda self: self.histories)
    @rule(data=st.data())
    def forget(self, data: Any) -> None:
        self.store.forget(*data.draw(st.sampled_from([*self.histories, *sorted(self.runs)])))

    @invariant()
    def consistent(self) -> None:
        self.store.check()
        for (tenant, id), history in self.histories.items():
            found = self.store.stored(tenant, id)
            assert found is None or [item["id"] for item in found.segment.history()] == history


Histories.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestHistories = Histories.TestCase
