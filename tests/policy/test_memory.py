"""When silent streams are looked at again, and that no event waits for thousands of looks."""

from __future__ import annotations

from samovar.policy.hazard import Hazards, Kind
from samovar.policy.memory import FIRST_LOOK_S, MAX_LOOKS, Memory
from samovar.policy.pace import Pace
from samovar.policy.spell import Spell


def silent(memory: Memory, count: int, tenant: str = "a") -> list[str]:
    signs = Hazards().signs(Kind.STOP, "", Pace().level)
    names = [f"{tenant}\0{number}" for number in range(count)]
    for at, name in enumerate(names):
        known = memory.seen(name, float(at), tenant)
        known.idle = Spell(float(at), signs)
        memory.watch(known, float(at))
    return names


def test_a_tenant_that_was_away_is_counted_a_part_at_each_of_its_events() -> None:
    memory = Memory()
    names = silent(memory, 3 * MAX_LOOKS + 5)
    now = 10 * FIRST_LOOK_S + len(names)
    found = [[known.name for known in memory.due("a", now)] for _ in range(5)]
    assert [len(part) for part in found] == [MAX_LOOKS, MAX_LOOKS, MAX_LOOKS, 5, 0]
    assert [name for part in found for name in part] == names, "those due longest first, each once"
    memory.check()


def test_streams_forgotten_meanwhile_count_as_looks() -> None:
    memory = Memory(max_streams=2 * MAX_LOOKS)
    silent(memory, 3 * MAX_LOOKS)
    now = 1e6
    assert [len(list(memory.due("a", now))) for _ in range(4)] == [0, MAX_LOOKS, MAX_LOOKS, 0]


def test_others_are_left_for_events_of_their_own() -> None:
    memory = Memory()
    silent(memory, 2, "a")
    silent(memory, 2, "b")
    assert [known.tenant for known in memory.due("b", 1e3)] == ["b", "b"] and list(memory.due("c", 1e3)) == []
    assert len(list(memory.due("a", 1e3))) == 2
