"""Finished simulations kept in a file: what is there is taken over, of the same settings alone, and nothing half
written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
import resource
import shutil
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
import pytest

from samovar.base.errors import ConfigError
from samovar.kv.settings import tiers_of
from samovar.sim.cost.layout import Layout
from samovar.sim.plan_trial import Job, Trial
from samovar.sim.plan_trials import TRIALS, KeptRunner, TrialFile
from samovar.sim.settings import Acceptance
from samovar.workload.metrics_cost import Cost
from tests.sim.plan_made import FormulaRunner, setup, trial

SETTINGS = {"--duration": "900", "--model": "Kimi-K2.6 (0123)"}
COST = Cost(basis="own", hourly=1.2, per_million_tokens=0.1, per_million_uncached_tokens=1 / 3, per_turn=None,
            per_session=0.5)  # fmt: skip
TRIALS_MADE = [
    trial(1000.0 / 3, 50.1),
    trial(7.0, None, load=64, of=setup(layout=Layout(dp=8, ep=True), acceptance=Acceptance(3, 2.49))),
    trial(9.0, load=16, of=setup(tiers=tiers_of(offloading_size="64", disk_path="/d", disk_size="160GiB"))),
    trial(1e-7, 0.0, of=setup(max_num_seqs=16, retention_policy="agent"), costs=(COST,), slo={"ttft_s": 2.0}),
]


def put(folder: Path, *trials: Trial, settings: dict[str, str] = SETTINGS, overwrite: bool = False) -> TrialFile:
    """Adds to what is there; closed."""
    with TrialFile(folder, settings, overwrite=overwrite) as file:
        for one in trials:
            file.add(one)
    return file


def test_what_is_kept_is_what_was_found(tmp_path: Path) -> None:
    with TrialFile(tmp_path / "new", SETTINGS) as first:
        assert first.num_taken == 0 and first.get(TRIALS_MADE[0].job) is None
    put(tmp_path / "new", *TRIALS_MADE)
    again = put(tmp_path / "new")
    assert again.num_taken == len(TRIALS_MADE)
    assert [again.get(one.job) for one in TRIALS_MADE] == TRIALS_MADE
    assert again.get(replace(TRIALS_MADE[0].job, concurrency=2)) is None


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    put(tmp_path, TRIALS_MADE[0])
    before = (tmp_path / TRIALS).read_bytes()
    for other, named in (
        ({**SETTINGS, "--duration": "300"}, "(--duration was 900 and is 300); name another folder, or give --over"),
        ({**SETTINGS, "--slo": "x"}, "(--slo was not there and is x)"),
        ({"--duration": "900"}, "(--model was Kimi-K2.6 (0123) and is not there)"),
    ):
        with pytest.raises(ConfigError) as raised:
            TrialFile(tmp_path, other)
        assert named in raised.value.message and str(tmp_path) in raised.value.message
    assert (tmp_path / TRIALS).read_bytes() == before
    anew = put(tmp_path, settings={"--duration": "300"}, overwrite=True)
    assert anew.num_taken == 0 and put(tmp_path, settings={"--duration": "300"}).num_taken == 0


def test_trials_of_changed_code_are_refused(tmp_path: Path) -> None:
    changed = {**SETTINGS, "samovar": "0.1 0123456789ab+dirty"}
    put(tmp_path, TRIALS_MADE[0], settings=changed)
    before = (tmp_path / TRIALS).read_bytes()
    with pytest.raises(ConfigError, match=r"of other code \(samovar was 0.1 .*\+dirty: .*; name .* give --overwrite"):
        put(tmp_path, settings=changed)
    assert (tmp_path / TRIALS).read_bytes() == before
    assert put(tmp_path, settings=changed, overwrite=True).num_taken == 0


def test_overwriting_begins_anew_with_the_same_settings_too(tmp_path: Path) -> None:
    put(tmp_path, *TRIALS_MADE)
    assert put(tmp_path, TRIALS_MADE[1], overwrite=True).num_taken == 0
    assert put(tmp_path).num_taken == 1


@pytest.mark.parametrize("overwrite", [False, True])
def test_two_plans_at_once_in_one_folder(overwrite: bool, tmp_path: Path) -> None:
    with TrialFile(tmp_path, SETTINGS) as first:
        first.add(TRIALS_MADE[0])
        with (tmp_path / TRIALS).open("ab") as file:
            file.write(b"half")  # as if a line were on its way
        before = (tmp_path / TRIALS).read_bytes()
        with pytest.raises(ConfigError, match="another plan is at work there"):
            TrialFile(tmp_path, SETTINGS, overwrite=overwrite)
        assert (tmp_path / TRIALS).read_bytes() == before
    assert put(tmp_path).num_taken == 1
    with pytest.raises(ConfigError, match="--model was"):
        put(tmp_path, settings={"--duration": "900"})
    assert put(tmp_path).num_taken == 1  # nor does one that was refused keep it


def test_folders_that_cannot_be_had(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty"):
        TrialFile(tmp_path, SETTINGS)
    with pytest.raises(ConfigError, match=r"mine.txt: cannot be used"):
        TrialFile(tmp_path / "mine.txt", SETTINGS)
    (tmp_path / "folder" / TRIALS).mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"trials.jsonl cannot be used: Is a directory"):
        TrialFile(tmp_path / "folder", SETTINGS)
    for broken, named in ((b"{}\n", "line 1"), (b'{"settings":{}}\n{"job":1}\n', "line 2"), (b"\xff", "line 1")):
        (tmp_path / "broken").mkdir(exist_ok=True)
        (tmp_path / "broken" / TRIALS).write_bytes(broken)
        with pytest.raises(ConfigError, match=f"is broken in {named}"):
            TrialFile(tmp_path / "broken", {})


def test_a_file_that_cannot_be_written_any_more(tmp_path: Path) -> None:
    with TrialFile(tmp_path / "out", SETTINGS) as file:
        shutil.rmtree(tmp_path / "out")
        with pytest.raises(ConfigError, match=r"trials.jsonl cannot be used: No such file"):
            file.add(TRIALS_MADE[0])


@pytest.mark.parametrize("room", [True, False])
def test_a_line_that_was_written_in_part_holds_up_no_other(room: bool, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with TrialFile(tmp_path, SETTINGS) as file:
        size = (tmp_path / TRIALS).stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, before[1]))
        try:
            with pytest.raises(ConfigError, match="cannot be used: File too large"):
                file.add(TRIALS_MADE[0])
            assert (tmp_path / TRIALS).stat().st_size == size + 100
            if not room:
                file.close()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        if room:
            file.add(TRIALS_MADE[1])
    kept = put(tmp_path)
    assert [kept.get(one.job) for one in TRIALS_MADE[:2]] == (TRIALS_MADE[:2] if room else [None, None])


class Interrupted:
    """A runner that is interrupted while it works at the job after `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.ran: list[Job] = []

    def run(self, jobs: Iterable[Job], progress: Callable[[float, Trial | None], None]) -> list[Trial]:
        found = []
        for job in jobs:
            if len(self.ran) == self.most:
                raise KeyboardInterrupt
            self.ran.append(job)
            found.append(trial(5.0, load=job.concurrency, of=job.setup))
            progress(len(found) - 0.5, None)
            progress(len(found), found[-1])
        return found


def test_nothing_is_simulated_twice(tmp_path: Path) -> None:
    jobs = [Job(setup(), load) for load in range(1, 6)]
    with TrialFile(tmp_path / "out", SETTINGS) as file:
        kept = KeptRunner(Interrupted(2), file)
        with pytest.raises(KeyboardInterrupt):
            kept.run(jobs, lambda done, ended: None)
    assert [*kept.found] == jobs[:2]
    rest = FormulaRunner(lambda job: (5.0, 50.0))
    told: list[float] = []
    with TrialFile(tmp_path / "out", SETTINGS) as file:
        again = KeptRunner(rest, file)
        found = again.run([jobs[4], *jobs[:4]], lambda done, ended: told.append(done))
        assert [one.job for one in found] == [jobs[4], *jobs[:4]] and rest.ran == [jobs[4], *jobs[2:4]]
        assert told == [3, 4, 5]
        assert again.run(jobs[:2], lambda done, ended: told.append(done)) == [found[1], found[2]]
    assert told[3:] == [2] and len(rest.ran) == 3


class TrialFileMachine(RuleBasedStateMachine):
    """Runs that add, are killed (also in mid-line) and begin again."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.kept: dict[Job, Trial] = {}
        self.file = TrialFile(self.folder, SETTINGS)

    @rule(load=st.integers(1, 5), rate=st.floats(0, 1e9))
    def add(self, load: int, rate: float) -> None:
        one = trial(rate, load=load)
        self.file.add(one)
        self.kept[one.job] = one

    @rule()
    def begin_again(self) -> None:
        self.file.close()
        self.file = TrialFile(self.folder, SETTINGS)
        assert self.file.num_taken == len(self.kept)

    @precondition(lambda self: self.kept)
    @rule(share=st.floats(0, 0.99))
    def die_in_mid_line(self, share: float) -> None:
        path = self.folder / TRIALS
        *_, last = path.read_bytes().splitlines()
        with path.open("ab") as file:
            file.write(last[: int(share * len(last))])
        self.begin_again()

    @invariant()
    def has_what_was_added(self) -> None:
        assert all(self.file.get(job) == one for job, one in self.kept.items())

    def teardown(self) -> None:
        self.file.close()
        shutil.rmtree(self.folder)


TrialFileMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)
TestTrialFileMachine = TrialFileMachine.TestCase
