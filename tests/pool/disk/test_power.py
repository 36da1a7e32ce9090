"""Power cuts: of what was not synced any sectors may be missing, names included."""

from __future__ import annotations

from pathlib import Path
import random

import pytest

from samovar.pool.disk.log import DiskLog
from tests.pool.disk.faults import Killed
from tests.pool.disk.helpers import abandon, block, data_of, key_of, open_log, read
from tests.pool.disk.power import PowerFiles

UNACKNOWLEDGED = set(range(500, 505))
"""Written by commits that a cut interrupts: each of them may be there or not."""


@pytest.mark.parametrize("punching", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_what_was_acknowledged_survives_and_what_was_deleted_stays_away(
    tmp_path: Path, seed: int, punching: bool
) -> None:
    rng = random.Random(seed)
    model: dict[int, int] = {}
    for _ in range(6):
        files = PowerFiles()
        log = open_log(tmp_path, files=files, punching=punching, capacity_bytes=1 << 20, segment_bytes=32 << 10)
        found = {int.from_bytes(info.key, "big") for info in log.recovered()}
        assert found - UNACKNOWLEDGED == set(model)
        log.delete([key_of(n) for n in UNACKNOWLEDGED])
        assert all(read(log, n) == data_of(n, version) for n, version in model.items())
        log.flush()
        log.check()
        for _ in range(rng.randrange(12)):
            _act(rng, log, model)
        log.flush()
        _cut_in_a_commit(rng, log, files)
        files.cut(rng)


def _act(rng: random.Random, log: DiskLog, model: dict[int, int]) -> None:
    version = rng.randrange(1 << 30)
    if rng.random() < 0.6:
        batch = rng.sample(range(90), rng.randrange(1, 9))
        outcomes = log.write([block(n, version) for n in batch])
        model.update({n: version for n, outcome in zip(batch, outcomes, strict=True) if outcome == "ok"})
    elif rng.random() < 0.7:
        batch = rng.sample(range(90), 25)
        log.delete([key_of(n) for n in batch])
        for n in batch:
            model.pop(n, None)
    else:
        log.compact(1 << 20)


def _cut_in_a_commit(rng: random.Random, log: DiskLog, files: PowerFiles) -> None:
    """The last thing that happens is a commit that does not get through."""

    def killed(fd: int) -> None:
        raise Killed

    if rng.random() < 0.7:
        files.sync = killed  # type: ignore[method-assign]
        with pytest.raises(Killed):
            log.write([block(n, 7) for n in sorted(UNACKNOWLEDGED)])
        del files.sync
    abandon(log)
