"""The mover over the real disk log: what was written is there after a restart, and damage on the disk is a miss."""

from __future__ import annotations

from pathlib import Path

from samovar.pool.disk.log import DiskLog
from tests.kv.mover_parts import Rig, key, load, move, store

NUMBERS = list(range(10, 50))


def opened(folder: Path, rig: Rig) -> DiskLog:
    return DiskLog.open(str(folder), rig.layout.fingerprint, rig.layout.block_bytes, 4 << 20)


def with_log(folder: Path) -> tuple[Rig, DiskLog]:
    plain = Rig()
    plain.mover.close()
    log = opened(folder, plain)
    return Rig(disk=log), log


def written(folder: Path) -> None:
    rig, log = with_log(folder)
    slots = list(range(40))
    rig.keep(1, NUMBERS, slots)
    done = rig.run(move("write", -1, NUMBERS, slots))
    assert not done.failed and done.seconds > 0
    assert rig.run(move("delete", -2, NUMBERS[30:])).failed == ()
    rig.mover.close()
    log.close()


def test_warm_after_a_restart(tmp_path: Path) -> None:
    written(tmp_path)
    rig, log = with_log(tmp_path)
    found = log.recovered()
    assert [info.key for info in found] == [key(number) for number in NUMBERS[:30]]
    assert [info.parent for info in found] == [b"", *(key(number) for number in NUMBERS[:29])]
    assert {info.stream for info in found} == {"main"}
    assert not rig.run(load(1, NUMBERS[:30], range(30), range(30), 5, from_disk=30)).failed
    assert all(rig.holds(n, number) for n, number in enumerate(NUMBERS[:30]))
    assert not rig.run(load(2, NUMBERS[:30], range(30, 60), range(30), 5)).failed, "they lie in slots now"
    done = rig.run(load(3, NUMBERS[28:], range(12), range(40, 52), 6, from_disk=12))
    assert (done.failed, done.reason) == (tuple(range(2, 12)), "missing")
    rig.arena.check()
    log.check()
    rig.mover.close()
    log.close()


def test_damage_on_the_disk(tmp_path: Path) -> None:
    """One bit of one payload: that block and what follows it are computed again, the rest of the log is as it was."""
    written(tmp_path)
    rig, log = with_log(tmp_path)
    wanted = rig.content(NUMBERS[7]).tobytes()
    for path in tmp_path.rglob("*.seg"):
        data = bytearray(path.read_bytes())
        at = data.find(wanted)
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at + 50)
                file.write(bytes([data[at + 50] ^ 1]))
    done = rig.run(load(1, NUMBERS[:20], range(20), range(20), 5, from_disk=20))
    assert (done.failed, done.reason) == (tuple(range(7, 20)), "checksum")
    assert all(rig.holds(n, NUMBERS[n]) for n in range(7))
    assert not any(any(rig.bytes_of(n)) for n in range(7, 20))
    done = rig.run(move("read", -1, NUMBERS[:20], range(20, 40)))
    assert (done.failed, done.reason) == ((7,), "missing"), "the damaged record is gone, no other"
    rig.mover.close()
    log.close()


def test_a_full_log_is_said(tmp_path: Path) -> None:
    rig, log = with_log(tmp_path)
    rig.keep(1, NUMBERS, list(range(40)))
    reasons, name = set(), 1000
    while "full" not in reasons and name < 1000 + 60 * 40:
        numbers = range(name, name + 40)
        rig.fill(0, 1)
        assert not rig.run(store(name, numbers, [0] * 40, range(40), name)).failed
        reasons.add(rig.run(move("write", -name, numbers, range(40), name)).reason)
        name += 40
    assert reasons == {"", "full"} and rig.mover.stats().errors == 0
    assert log.stats().physical_bytes <= 1.1 * (4 << 20)
    rig.mover.close()
    log.close()
