"""`benchmarks.kv_faults`: the faults are those meant, and otherwise the tiers work."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from samovar.kernels.cpu.pages import zeroed
from samovar.pool.arena import HostArena, arena_bytes
from samovar.pool.disk.files import OsFiles
from tests.pool.disk.helpers import block, data_of, key_of, open_log

pytestmark = pytest.mark.torch

ROUNDS = 2000
SLOT_BYTES = 512


def test_most_reads_of_the_host_tier_are_right_and_none_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import kv_faults_engine  # brings torch

    for name in ("get", "put"):
        monkeypatch.setattr(HostArena, name, getattr(HostArena, name))
    kv_faults_engine._break_arena()
    arena = HostArena(zeroed(arena_bytes(1, SLOT_BYTES)), 1, SLOT_BYTES)
    content, out = np.arange(SLOT_BYTES, dtype=np.uint8), np.empty(SLOT_BYTES, np.uint8)
    key = bytes(16)
    seen: Counter[str] = Counter()
    for generation in range(ROUNDS):
        try:
            arena.put(0, key, generation, content)
            outcome = arena.get(0, key, generation, out, cached=True)
        except RuntimeError:
            seen["raised"] += 1
            continue
        seen[outcome] += 1
        assert outcome != "ok" or np.array_equal(out, content)
    assert set(seen) == {"ok", "checksum", "raised"}
    assert seen["ok"] >= ROUNDS * 0.95


def test_most_reads_of_the_disk_are_right_and_none_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import kv_faults_engine  # brings torch

    monkeypatch.setattr(kv_faults_engine, "SLOW_S", 0.0)
    monkeypatch.setattr(kv_faults_engine, "HANG_S", 0.0)
    files = kv_faults_engine.FaultyFiles()
    assert isinstance(files, OsFiles)
    seen: Counter[str] = Counter()
    with open_log(tmp_path, files=files) as log:
        for number in range(400):
            written = log.write([block(number)])[0]
            seen[f"write {written}"] += 1
            buffer = bytearray(len(data_of(number)))
            outcome = log.read_into(key_of(number), buffer)
            seen[f"read {outcome}"] += 1
            assert outcome != "ok" or bytes(buffer) == bytes(data_of(number))
            log.delete([key_of(number)])
    assert seen["write ok"] >= 300 and seen["read ok"] >= 300
    assert seen["write io"] + seen["write full"] and seen["read io"] + seen["read checksum"]
