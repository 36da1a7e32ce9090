"""Finished simulations of a plan, kept in its folder as they come (`trials.jsonl`), so that a plan that was interrupted
goes on where it was.

The first line says of what settings they are, each other line is one trial, written as soon as it has ended. What is
left of one that was not written whole is cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from samovar.base.errors import ConfigError
from samovar.base.folders import check_unused, make_folder
from samovar.sim.plan_search import Runner
from samovar.sim.plan_settings import differing
from samovar.sim.plan_trial import Job, Trial

T = TypeVar("T")

TRIALS = "trials.jsonl"
_ANEW = "name another folder, or give --overwrite to begin anew"


class Head(msgspec.Struct, frozen=True):
    """The first line."""

    settings: dict[str, str]


class TrialFile:
    def __init__(self, folder: Path, settings: Mapping[str, str], *, overwrite: bool = False) -> None:
        """Makes the folder. `overwrite`: begins anew, also in a folder that holds something else. Raises ConfigError
        for a folder in use, and for trials of other settings."""
        self.path = folder / TRIALS
        self._encoder = msgspec.json.Encoder()
        self._trials: dict[Job, Trial] = {}
        try:
            if overwrite or not self.path.exists():
                check_unused(folder, "--output", overwrite=overwrite)
                make_folder(folder, "--output")
                self.path.write_bytes(self._encoder.encode(Head(dict(settings))) + b"\n")
            else:
                self._take_over(settings)
        except OSError as error:
            raise self._unusable(error) from None
        self.num_taken = len(self._trials)
        """Trials that were there before."""

    def get(self, job: Job) -> Trial | None:
        return self._trials.get(job)

    def add(self, trial: Trial) -> None:
        """Raises ConfigError when it cannot be written."""
        self._trials[trial.job] = trial
        try:
            with self.path.open("ab", buffering=0) as file:
                file.write(self._encoder.encode(trial) + b"\n")
        except OSError as error:
            raise self._unusable(error) from None

    def _take_over(self, settings: Mapping[str, str]) -> None:
        whole, _, _ = self.path.read_bytes().rpartition(b"\n")
        first, *others = whole.split(b"\n")
        head = self._decoded(1, first, Head)
        if other := differing(head.settings, settings):
            raise self._refused(f"holds simulations of other settings ({other})")
        for number, line in enumerate(others, 2):
            trial = self._decoded(number, line, Trial)
            self._trials[trial.job] = trial
        with self.path.open("r+b") as file:
            file.truncate(len(whole) + 1)

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
