"""Finished simulations of a plan, kept in its folder as they come (`trials.jsonl`), so that a plan that was interrupted
goes on where it was.

The first line says of what settings they are, each other line is one trial, written as soon as it has ended. What is
left of one that was not written whole is cut off. One plan at a time has the file, and nothing of it is changed before
it is had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, TypeVar

import msgspec

from samovar.base.errors import ConfigError
from samovar.base.folders import check_unused, make_folder
from samovar.sim.plan_search import Runner
from samovar.sim.plan_settings import differing, unsure
from samovar.sim.plan_trial import Job, Trial

T = TypeVar("T")

TRIALS = "trials.jsonl"
_ANEW = "name another folder, or give --overwrite to begin anew"


class Head(msgspec.Struct, frozen=True):
    """The first line."""

    settings: dict[str, str]


class TrialFile:
    """Use as a context: it is nobody else's until the end."""

    def __init__(self, folder: Path, settings: Mapping[str, str], *, overwrite: bool = False) -> None:
        """Makes the folder. `overwrite`: begins anew, also in a folder that holds something else. Raises ConfigError
        for a folder in use, and for trials of other settings or of code that is not known."""
        self.path = folder / TRIALS
        self._encoder = msgspec.json.Encoder()
        self._trials: dict[Job, Trial] = {}
        try:
            if overwrite or not self.path.exists():
                check_unused(folder, "--output", overwrite=overwrite)
                make_folder(folder, "--output")
            self._file: BinaryIO = self.path.open("a+b")
        except OSError as error:
            raise self._unusable(error) from None
        try:
            self._begin(settings, overwrite)
        except BaseException:
            self.close()
            raise
        self.num_taken = len(self._trials)
        """Trials that were there before."""

    def __enter__(self) -> TrialFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with suppress(OSError):  # what cannot be written has been told by `add`
            self._file.close()

    def get(self, job: Job) -> Trial | None:
        return self._trials.get(job)

    def add(self, trial: Trial) -> None:
        """Raises ConfigError when it cannot be written."""
        self._trials[trial.job] = trial
        try:
            self._write(trial)
            if os.fstat(self._file.fileno()).st_nlink == 0:  # a file that was removed can be written all the same
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        except OSError as error:
            raise self._unusable(error) from None

    def _begin(self, settings: Mapping[str, str], overwrite: bool) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # let go of when the file is closed
            if overwrite:
                self._file.truncate(0)
            self._file.seek(0)
            if held := self._file.read():
                self._take_over(held, settings)
            else:
                self._write(Head(dict(settings)))
        except BlockingIOError:
            raise ConfigError(
                f"--output {self.path.parent}: another plan is at work there; name another folder, or wait for its end"
            ) from None
        except OSError as error:
            raise self._unusable(error) from None

    def _take_over(self, held: bytes, settings: Mapping[str, str]) -> None:
        whole, _, _ = held.rpartition(b"\n")
        first, *others = whole.split(b"\n")
        head = self._decoded(1, first, Head)
        if other := differing(head.settings, settings):
            raise self._refused(f"holds simulations of other settings ({other})")
        if code := unsure(head.settings, settings):
            raise self._refused(f"may hold simulations of other code ({code})")
        for number, line in enumerate(others, 2):
            trial = self._decoded(number, line, Trial)
            self._trials[trial.job] = trial
        self._file.truncate(len(whole) + 1)

    def _write(self, line: Head | Trial) -> None:
        """Buffered: what a full disk did not take of a line is there for the next write, which goes on with it."""
        self._file.write(self._encoder.encode(line) + b"\n")
        self._file.flush()

    def _decoded(self, number: int, line: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(line, type=kind)
        except (msgspec.MsgspecError, ConfigError) as error:
            raise self._refused(f"is broken in line {number} ({error})") from None

    def _refused(self, why: str) -> ConfigError:
        return ConfigError(f"--output {self.path.parent}: {TRIALS} there {why}; {_ANEW}")

    def _unusable(self, error: OSError) -> ConfigError:
        return ConfigError(f"--output {self.path.parent}: {TRIALS} cannot be used: {error.strerror or error}")


class KeptRunner:
    """`plan_search.Runner`: what the file has is not simulated again, everything else is added to it."""

    def __init__(self, runner: Runner, file: TrialFile) -> None:
        self._runner = runner
        self._file = file
        self.found: dict[Job, Trial] = {}
        """Of the jobs asked for, those that are done, also when the last of them are not all."""

    def run(self, jobs: Iterable[Job], progress: Callable[[float, Trial | None], None]) -> list[Trial]:
        jobs = list(jobs)
        known = {job: trial for job in jobs if (trial := self._file.get(job)) is not None}
        self.found |= known

        def told(done: float, ended: Trial | None) -> None:
            if ended is not None:
                self._file.add(ended)
                self.found[ended.job] = ended
            progress(len(known) + done, ended)

        missing = [job for job in jobs if job not in known]
        if missing:
            self._runner.run(missing, told)
        else:
            progress(len(known), None)
        return [self.found[job] for job in jobs]
