"""Trials in other processes: the same as in this one, whatever their number; failures reach the parent."""

from __future__ import annotations

from dataclasses import replace
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

import pytest

from samovar.base.errors import ConfigError
from samovar.sim.cost.layout import Layout
from samovar.sim.plan_pool import TrialFailed, TrialPool
from samovar.sim.plan_setup import Rules
from samovar.sim.plan_trial import Bench, Job, Trial, rules_for, run_job, watched_s
from samovar.workload.replay import ReplayConfig
from samovar.workload.replay_script import script_of
from samovar.workload.session import SessionTree, Stream
from tests.sim.plan_made import hardware, setup
from tests.workload.made_up import turn


def conversation(name: str, turns: int = 4) -> SessionTree:
    made = tuple(turn(2.0 * at, 2.0 * at + 1, range(1, 20 + 5 * at), tokens=64 * (19 + 5 * at)) for at in range(turns))
    return SessionTree(name, 64, (Stream("main", "main", made),), namespace=name)


TREES = (conversation("a"), conversation("b", 6))
BENCH = Bench(hardware("smollm2-135m", gpus=1), Rules(replay=ReplayConfig(concurrency=1), duration_s=5))
JOBS = [
    # All of a B200 for so small a model would be a million blocks to check.
    Job(
        setup(layout=Layout(), max_model_len=10_000, num_gpu_blocks_override=2000, prefill_schedule_interval=interval),
        load,
    )
    for interval, load in ((1, 1), (4, 2), (1, 2))
]


def silent(done: float, trial: Trial | None) -> None:
    pass


def timeless(trials: list[Trial]) -> list[Trial]:
    return [replace(trial, took_s=0.0) for trial in trials]


def test_watched_time_makes_up_for_few_lanes() -> None:
    assert [watched_s(100, lanes) for lanes in (1, 2, 4, 8, 64)] == [400, 400, 200, 100, 100]
    assert rules_for(BENCH.rules, 4).duration_s == 10 and rules_for(BENCH.rules, 4).replay.concurrency == 4


def test_workers_find_what_this_process_finds() -> None:
    scripts = [script_of(tree) for tree in TREES]
    here = [run_job(BENCH, scripts, job, lambda share: None) for job in JOBS]
    told: list[float] = []
    ended: list[Trial] = []

    def progress(done: float, trial: Trial | None) -> None:
        told.append(done)
        if trial is not None:
            ended.append(trial)

    with TrialPool(BENCH, TREES, 2) as pool:
        there = pool.run(JOBS, progress)
        again = pool.run(reversed(JOBS), silent)
    assert timeless(there) == timeless(here) == timeless(again)[::-1]
    assert sorted(ended, key=lambda trial: JOBS.index(trial.job)) == there
    assert told[-1] == len(JOBS) and all(0 <= done <= len(JOBS) for done in told)
    assert all(trial.point.ok > 0 for trial in here)


def test_failures_are_told() -> None:
    too_long = replace(JOBS[0], setup=replace(JOBS[0].setup, max_model_len=10**9))
    with TrialPool(BENCH, TREES, 1) as pool, pytest.raises(ConfigError, match="does not fit"):
        pool.run([too_long], silent)
    with TrialPool(BENCH, (), 1) as pool, pytest.raises(ConfigError, match="no sessions to replay"):
        pool.run(JOBS[:1], silent)
    with pytest.raises(ConfigError, match="--processes is 0"):
        TrialPool(BENCH, TREES, 0)


def test_a_worker_that_is_ended_ends_the_plan() -> None:
    with TrialPool(BENCH, TREES, 1) as pool:
        pid = pool.pids[0]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ConfigError, match="--processes is 1: one of them was ended from outside by SIGKILL"):
            pool.run(JOBS, silent)


@pytest.mark.parametrize(
    ("by", "kind", "told"),
    [
        (signal.SIGTERM, ConfigError, "ended from outside by SIGTERM"),
        (signal.SIGUSR1, TrialFailed, "a worker ended by SIGUSR1"),
        (signal.SIGRTMIN + 1, TrialFailed, f"a worker ended by signal {signal.SIGRTMIN + 1}"),
    ],
)
def test_only_who_ends_others_is_taken_for_outside(by: int, kind: type[Exception], told: str) -> None:
    with TrialPool(BENCH, TREES, 1) as pool:
        os.kill(pool.pids[0], by)
        with pytest.raises(kind, match=told):
            pool.run(JOBS, silent)


class KillsWhenTold:
    """At the first word of a worker: waits until `at_work` has said all it can, and kills `victim`."""

    def __init__(self, at_work: int, victim: int) -> None:
        self.at_work = at_work
        self.victim: int | None = victim
        self.first: Trial | None = None
        self.ended: list[Job] = []

    def __call__(self, done: float, trial: Trial | None) -> None:
        if self.victim is not None:
            self.first = trial
            wait_until_idle(self.at_work)
            os.kill(self.victim, signal.SIGKILL)
            while alive(self.victim):
                time.sleep(0.01)
            self.victim = None
        if trial is not None:
            self.ended.append(trial.job)


def test_what_had_ended_is_told_before_the_next_job_fails() -> None:
    with TrialPool(BENCH, TREES, 1) as pool:
        hears = KillsWhenTold(pool.pids[0], pool.pids[0])
        with pytest.raises(ConfigError, match="ended from outside by SIGKILL"):
            pool.run(JOBS, hears)
    assert hears.first is None and hears.ended == JOBS[:1]


def test_what_others_had_told_is_heard_when_one_fails() -> None:
    with TrialPool(BENCH, TREES, 2) as pool:
        stopped, other = pool.pids
        os.kill(stopped, signal.SIGSTOP)
        hears = KillsWhenTold(other, stopped)
        with pytest.raises(ConfigError, match="ended from outside by SIGKILL"):
            pool.run(JOBS, hears)
    assert hears.first is None and hears.ended == [JOBS[1]]


def test_a_worker_that_hangs_holds_nobody_up_at_the_end() -> None:
    with TrialPool(BENCH, TREES, 2) as pool:
        pids = pool.pids
        os.kill(pids[0], signal.SIGSTOP)
    assert not any(map(alive, pids))


PARENT = """
import sys
from dataclasses import replace
from tests.sim.test_plan_pool import BENCH, JOBS, TREES, TrialPool

if __name__ == "__main__":
    endless = replace(BENCH, rules=replace(BENCH.rules, duration_s=1e9))
    with TrialPool(endless, TREES, 2) as pool:
        print(*pool.pids, flush=True)
        pool.run(JOBS[:1], lambda done, trial: None)
"""


def test_no_worker_outlives_its_parent(tmp_path: Path) -> None:
    """Neither one that simulates nor one that waits for work."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    command, here = [sys.executable, str(script)], {"PYTHONPATH": "."}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=here) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        while max(map(cpu_s, pids)) < 1.8:  # in the midst of a simulation that tells its parent nothing for long
            time.sleep(0.05)
        assert all(map(alive, pids))
        parent.kill()
    until = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, pids))


def test_an_interrupt_is_the_parents_alone() -> None:
    """Also while a worker is still loading its parts."""
    with TrialPool(BENCH, TREES, 1) as pool:
        os.kill(pool.pids[0], signal.SIGINT)
        assert len(pool.run(JOBS[:1], silent)) == 1
        os.kill(pool.pids[0], signal.SIGINT)
        assert len(pool.run(JOBS[:1], silent)) == 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def cpu_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def wait_until_idle(pid: int) -> None:
    """Asleep in reading, as it is between two jobs, at several looks."""
    asleep = 0
    while asleep < 10:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Not one that has ended and that nobody has asked about since."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
