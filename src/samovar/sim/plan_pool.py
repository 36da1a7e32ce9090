"""Trials on several cores. Workers are fresh processes that get the load once and then one job after the other, so that
results depend on neither their number nor their order.

No worker outlives its parent: one thread of each waits for the parent's end, however it comes, and ends the process.
And the parent waits for none: a worker that is gone ends the run, as soon as what the others have told is heard, and at
the end all are killed: they hold nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from multiprocessing.resource_tracker import ensure_running
import os
import signal
from threading import Thread
import traceback
from types import TracebackType
from typing import Literal

from samovar.base.errors import ConfigError
from samovar.sim.plan_trial import Bench, Job, Trial, run_job
from samovar.workload.replay_script import Script, script_of
from samovar.workload.session import SessionTree

_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM}
"""What ends a process when memory is short, or by somebody's wish."""

Progress = Callable[[float, Trial | None], None]
"""Told how many of the jobs given are done, a running one by its share, and the trial that has just ended."""


class TrialFailed(RuntimeError):
    """A bug: a worker ended by itself, or raised what no user can cause. Holds its traceback, if there is one."""


@dataclass(frozen=True, slots=True)
class _Told:
    kind: Literal["share", "trial", "config", "bug"]
    job: int
    share: float = 0.0
    trial: Trial | None = None
    message: str = ""


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: Connection
    busy: bool = False


@dataclass(slots=True)
class _Batch:
    jobs: Sequence[Job]
    progress: Progress
    trials: dict[int, Trial] = field(default_factory=dict)
    shares: dict[int, float] = field(default_factory=dict)
    next: int = 0
    failed: Exception | None = None
    """The first failure of a worker. No job is given after it."""

    def told(self, ended: Trial | None) -> None:
        self.progress(len(self.trials) + sum(self.shares.values()), ended)


class TrialPool:
    """Use as a context: its processes end with it, whatever happens."""

    def __init__(self, bench: Bench, trees: Sequence[SessionTree], processes: int) -> None:
        if processes < 1:
            raise ConfigError(f"--processes is {processes}; it must be at least 1")
        self._workers: list[_Worker] = []
        try:
            for _ in range(processes):
                self._workers.append(_started(get_context("spawn"), bench, tuple(trees)))
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> TrialPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
            worker.process.close()
        self._workers.clear()

    @property
    def pids(self) -> list[int]:
        """Of the workers."""
        return [worker.process.pid for worker in self._workers if worker.process.pid is not None]

    def run(self, jobs: Iterable[Job], progress: Progress) -> list[Trial]:
        """One trial per job, in their order. Raises ConfigError as a trial does, when `progress` has heard of all that
        had ended."""
        batch = _Batch(list(jobs), progress)
        for worker in self._workers:
            self._give(worker, batch)
        while len(batch.trials) < len(batch.jobs) and batch.failed is None:
            pipes = {worker.pipe: worker for worker in self._workers if worker.busy}
            for pipe in wait(list(pipes)):
                assert isinstance(pipe, Connection)
                self._hear(pipes[pipe], batch)
        if batch.failed is not None:
            for worker in self._workers:
                while worker.busy and worker.pipe.poll():
                    self._hear(worker, batch)
            raise batch.failed
        return [batch.trials[at] for at in range(len(batch.jobs))]

    def _give(self, worker: _Worker, batch: _Batch) -> None:
        worker.busy = batch.next < len(batch.jobs) and batch.failed is None
        if worker.busy:
            try:
                worker.pipe.send((batch.next, batch.jobs[batch.next]))
            except OSError:
                self._fail(worker, batch, self._ended(worker))
            batch.next += 1

    def _hear(self, worker: _Worker, batch: _Batch) -> None:
        try:
            told: _Told = worker.pipe.recv()
        except (EOFError, OSError):
            return self._fail(worker, batch, self._ended(worker))
        if told.kind == "config":
            return self._fail(worker, batch, ConfigError(told.message))
        if told.kind == "bug":
            return self._fail(worker, batch, TrialFailed(told.message))
        if told.kind == "share":
            batch.shares[told.job] = told.share
            return batch.told(None)
        assert told.trial is not None
        batch.trials[told.job] = told.trial
        batch.shares.pop(told.job, None)
        batch.told(told.trial)  # before anything that may fail: it has ended, whatever becomes of the next one
        return self._give(worker, batch)

    def _fail(self, worker: _Worker, batch: _Batch, error: Exception) -> None:
        worker.busy = False
        batch.failed = batch.failed or error

    def _ended(self, worker: _Worker) -> Exception:
        """Nothing of ours ends a worker from outside, but whoever is short of memory does."""
        worker.process.join()
        code = worker.process.exitcode
        if code is None or -code not in _FROM_OUTSIDE:
            return TrialFailed(f"a worker ended {_by(code)}")
        return ConfigError(
            f"--processes is {len(self._workers)}: one of them was ended from outside {_by(code)}; "
            "each simulation needs memory of its own, so fewer at once need less"
        )


def _by(code: int | None) -> str:
    if code is None or code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:  # some have no name
        return f"by signal {-code}"


def _started(context: SpawnContext, bench: Bench, trees: tuple[SessionTree, ...]) -> _Worker:
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(bench, trees, theirs), daemon=True)
    with _interrupts_held():
        process.start()
    theirs.close()
    return _Worker(process, ours)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C goes to all processes of a terminal, and is the parent's to handle. A process begins with the signals that
    were held when it was made, so it never sees one, not even while it loads its parts."""
    ensure_running()  # else it is begun with the first process, and lets go of the signal after that
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(bench: Bench, trees: tuple[SessionTree, ...], pipe: Connection) -> None:
    """A worker's life."""
    Thread(target=_end_with_parent, name="parent", daemon=True).start()
    scripts = [script_of(tree) for tree in trees]
    while True:
        try:
            number, job = pipe.recv()
        except EOFError:
            return
        pipe.send(_told_of(bench, scripts, number, job, pipe))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _told_of(bench: Bench, scripts: Sequence[Script], number: int, job: Job, pipe: Connection) -> _Told:
    last = 0.0

    def progress(share: float) -> None:
        nonlocal last
        if share >= last + 0.02:
            last = share
            pipe.send(_Told("share", number, share=share))

    try:
        return _Told("trial", number, trial=run_job(bench, scripts, job, progress))
    except ConfigError as error:
        return _Told("config", number, message=error.message)
    except Exception:
        return _Told("bug", number, message=traceback.format_exc())
