"""Trials on several cores. Workers are fresh processes that get the load once and then one job after the other, so that
results depend on neither their number nor their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
import signal
import traceback
from types import TracebackType
from typing import Literal

from samovar.base.errors import ConfigError
from samovar.sim.plan_trial import Bench, Job, Trial, run_job
from samovar.workload.replay_script import Script, script_of
from samovar.workload.session import SessionTree

Progress = Callable[[float], None]
"""Told how many of the jobs given are done; a running one counts by its share."""


class TrialFailed(RuntimeError):
    """A bug: a worker ended, or raised what no user can cause. Holds the worker's traceback."""


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

    def told(self) -> None:
        self.progress(len(self.trials) + sum(self.shares.values()))


class TrialPool:
    """Use as a context: its processes end with it, whatever happens."""

    def __init__(self, bench: Bench, trees: Sequence[SessionTree], processes: int) -> None:
        if processes < 1:
            raise ConfigError(f"--processes is {processes}; it must be at least 1")
        context = get_context("spawn")
        self._workers: list[_Worker] = []
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(bench, tuple(trees), theirs), daemon=True)
            process.start()
            theirs.close()
            self._workers.append(_Worker(process, ours))

    def __enter__(self) -> TrialPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
            worker.process.close()

    @property
    def pids(self) -> list[int]:
        """Of the workers."""
        return [worker.process.pid for worker in self._workers if worker.process.pid is not None]

    def run(self, jobs: Iterable[Job], progress: Progress) -> list[Trial]:
        """One trial per job, in their order. Raises ConfigError as a trial does."""
        batch = _Batch(list(jobs), progress)
        for worker in self._workers:
            self._give(worker, batch)
        while len(batch.trials) < len(batch.jobs):
            pipes = {worker.pipe: worker for worker in self._workers if worker.busy}
            for pipe in wait(list(pipes)):
                assert isinstance(pipe, Connection)
                self._hear(pipes[pipe], batch)
        return [batch.trials[at] for at in range(len(batch.jobs))]

    def _give(self, worker: _Worker, batch: _Batch) -> None:
        worker.busy = batch.next < len(batch.jobs)
        if worker.busy:
            try:
                worker.pipe.send((batch.next, batch.jobs[batch.next]))
            except OSError:
                raise _ended(worker) from None
            batch.next += 1

    def _hear(self, worker: _Worker, batch: _Batch) -> None:
        try:
            told: _Told = worker.pipe.recv()
        except (EOFError, OSError):
            raise _ended(worker) from None
        if told.kind == "config":
            raise ConfigError(told.message)
        if told.kind == "bug":
            raise TrialFailed(told.message)
        if told.kind == "share":
            batch.shares[told.job] = told.share
        else:
            assert told.trial is not None
            batch.trials[told.job] = told.trial
            batch.shares.pop(told.job, None)
            self._give(worker, batch)
        batch.told()


def _ended(worker: _Worker) -> TrialFailed:
    worker.process.join()
    return TrialFailed(f"a worker ended with exit code {worker.process.exitcode}")


def _work(bench: Bench, trees: tuple[SessionTree, ...], pipe: Connection) -> None:
    """A worker's life. Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    scripts = [script_of(tree) for tree in trees]
    while True:
        try:
            number, job = pipe.recv()
        except EOFError:
            return
        pipe.send(_told_of(bench, scripts, number, job, pipe))


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
