"""A plan that is stopped leaves what it had; begun again it ends where an undisturbed one does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from samovar.base.errors import ConfigError
from samovar.sim import plan_settings
from samovar.sim.cost.layout import Layout
from samovar.sim.plan import PAGE, RESULT, Named, PlanFound, PlanJob, PlanStopped, open_trials, run_plan
from samovar.sim.plan_changes import Offer, menu
from samovar.sim.plan_pool import TrialFailed
from samovar.sim.plan_search import Told
from samovar.sim.plan_setup import Rules
from samovar.sim.plan_trial import Bench
from samovar.sim.plan_trials import TRIALS
from samovar.workload.replay import ReplayConfig
from samovar.workload.replay_fit import Fitted
from tests.sim.plan_made import hardware, setup
from tests.sim.test_plan_pool import TREES


@pytest.fixture(autouse=True)
def _code_as_it_was_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nothing is taken over, and these tests are run on changed code too."""
    monkeypatch.setattr(plan_settings, "git_revision", lambda: "0123456789abcdef")


HOST = hardware("smollm2-135m", gpus=1)
BASE = setup(layout=Layout(), max_model_len=10_000, num_gpu_blocks_override=2000)


def job(duration_s: float = 5) -> PlanJob:
    bench = Bench(HOST, Rules(replay=ReplayConfig(concurrency=1), duration_s=duration_s), {"ttft_s": 5.0})
    named = Named("m", "d", ("--trace", "t"))
    return PlanJob(bench, menu(HOST, BASE, Offer()), (1, 2), Fitted(TREES, (), {}), {}, named)


class Hears:
    """`most` simulations end, then `cause` comes."""

    def __init__(self, most: int | None = None, cause: BaseException | None = None) -> None:
        self.most = most
        self.cause = cause
        self.ended = 0

    def __call__(self, now: Told) -> None:
        self.ended += now.ended is not None
        if self.ended == self.most and self.cause is not None:
            raise self.cause


def run(output: Path, hears: Hears, one: PlanJob | None = None) -> PlanFound | PlanStopped:
    one = one or job()
    with open_trials(one, output) as trials:
        return run_plan(one, trials, 1, ["a fact"], hears)


def measured(output: Path) -> dict[str, Any]:
    found = json.loads((output / RESULT).read_text())["measured"]
    assert isinstance(found, dict)
    return found


def test_an_interrupted_plan_is_gone_on_with(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", Hears())
    assert isinstance(whole, PlanFound) and measured(tmp_path / "whole")["complete"] is True
    hears, out = Hears(3, KeyboardInterrupt()), tmp_path / "out"
    made = run(out, hears)
    assert isinstance(made, PlanStopped) and made.cause is hears.cause and made.result is not None
    assert made.part.told.startswith("interrupted after 3 of about ")
    assert made.part.planned >= len(whole.plan.trials)
    part = measured(out)
    assert part["complete"] is False and part["stopped"] == made.part.told
    assert part["trials"] == measured(tmp_path / "whole")["trials"][:3]
    assert {trial.job for trial in made.part.frontier} <= {trial.job for trial in made.part.trials}
    page = (out / PAGE).read_text()
    assert f"Not finished: {made.part.told}" in page and "Frontier so far" in page and "a fact" in page
    again = Hears()
    ended = run(out, again)
    assert isinstance(ended, PlanFound) and again.ended == len(whole.plan.trials) - 3
    assert measured(out) == measured(tmp_path / "whole")
    assert len((out / TRIALS).read_text().splitlines()) == 1 + len(whole.plan.trials)


def test_a_fault_leaves_what_had_ended(tmp_path: Path) -> None:
    made = run(tmp_path / "out", Hears(1, TrialFailed("it broke")))
    assert isinstance(made, PlanStopped) and isinstance(made.cause, TrialFailed)
    assert made.part.told.startswith("it failed after 1 of about ") and len(made.part.best) == 1


def test_stopped_before_anything_ended_there_is_no_page(tmp_path: Path) -> None:
    made = run(tmp_path / "out", Hears(0, KeyboardInterrupt()))
    assert isinstance(made, PlanStopped) and made.result is None
    assert {path.name for path in (tmp_path / "out").iterdir()} == {TRIALS}


def test_trials_of_other_settings_are_not_taken(tmp_path: Path) -> None:
    open_trials(job(), tmp_path / "out").close()
    with pytest.raises(ConfigError, match="--duration was 5 and is 6"):
        open_trials(job(6), tmp_path / "out")
