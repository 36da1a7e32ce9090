"""Measured steps as a table: what is at a knot comes back, between knots it is linear, and logs are read strictly."""

from __future__ import annotations

import json
from pathlib import Path
import random

from hypothesis import given
from hypothesis import strategies as st
import msgspec
import pytest

from samovar.base.errors import ConfigError
from samovar.sim.cost.shape import Chunk, StepShape
from samovar.sim.cost.step_fit import fit_table
from samovar.sim.cost.step_log import load_steps, read_log
from samovar.sim.cost.step_table import MeasuredModel, StepRow, StepTable, table_of


def seconds(batch: float, prefill: float, kv: float) -> float:
    """Linear in each, with a jump where a step computes a prompt."""
    return 0.01 + 2e-4 * batch + (0.05 + 1e-4 * prefill if prefill else 0.0) + 3e-8 * kv + 1e-10 * batch * kv


GRID = [StepRow(b, p, k, seconds(b, p, k)) for b in (1, 8, 64) for p in (0, 512, 8192) for k in (0, 100_000, 1_000_000)]
TABLE = table_of(GRID, "grid")


def test_knots_come_back_exactly() -> None:
    for row in GRID:
        assert TABLE.seconds(row.batch, row.prefill_tokens, row.kv_read_tokens) == pytest.approx(row.seconds, rel=1e-12)


@given(st.floats(1, 64), st.floats(512, 8192), st.floats(0, 1e6))
def test_between_knots_it_is_linear(batch: float, prefill: float, kv: float) -> None:
    assert TABLE.seconds(batch, prefill, kv) == pytest.approx(seconds(batch, prefill, kv), rel=1e-9)


def test_it_reaches_to_its_last_knots() -> None:
    assert TABLE.reach == (64, 8192, 1_000_000)


def test_beyond_the_last_knot_the_slope_goes_on() -> None:
    assert TABLE.seconds(8, 10_000, 2_000_000) == pytest.approx(seconds(8, 10_000, 2_000_000))
    assert TABLE.seconds(0, 0, 0) == TABLE.seconds(1, 0, 0)


def test_it_never_goes_down_beyond_the_last_knot() -> None:
    falling = StepTable(((1.0,), (0.0, 100.0), (0.0,)), (2.0, 1.0))
    assert falling.seconds(1, 50, 0) == 1.5 and falling.seconds(1, 1000, 0) == 1.0


def test_repeated_steps_are_averaged_and_gaps_named() -> None:
    twice = table_of([StepRow(1, 0, 0, 1.0), StepRow(1, 0, 0, 3.0)], "log")
    assert twice.seconds(5, 5, 5) == 2.0
    with pytest.raises(ConfigError, match=r"grid.toml: no step with batch 1, prefill_tokens 10 and kv_read_tokens 5"):
        table_of([StepRow(1, 0, 0, 1.0), StepRow(1, 10, 0, 1.0), StepRow(1, 0, 5, 1.0)], "grid.toml")


def scattered(num: int, noise: float, seed: int = 0) -> list[StepRow]:
    chance = random.Random(seed)
    rows = []
    for _ in range(num):
        batch, prefill = chance.randint(1, 64), chance.choice([0, 0, chance.randint(1, 8192)])
        kv = chance.randint(0, batch * 100_000)
        rows.append(StepRow(batch, prefill, kv, seconds(batch, prefill, kv) * chance.gauss(1, noise)))
    return rows


def test_steps_that_lie_anywhere() -> None:
    """Noise of 3 % averages out; the jump to steps with prompts stays sharp."""
    rows = scattered(4000, 0.03)
    table = fit_table(rows, "log")
    errors = sorted(
        abs(
            table.seconds(row.batch, row.prefill_tokens, row.kv_read_tokens)
            / seconds(row.batch, row.prefill_tokens, row.kv_read_tokens)
            - 1
        )
        for row in rows
    )
    assert errors[len(errors) // 2] < 0.005 and errors[int(len(errors) * 0.99)] < 0.03


def test_slow_steps_count_for_what_they_take() -> None:
    """One in five takes three times as long as the others like it: 1.4 times on average, which is what many take."""
    rows = [
        msgspec.structs.replace(row, seconds=row.seconds * (3.0 if number % 5 == 0 else 1.0))
        for number, row in enumerate(scattered(4000, 0.0))
    ]
    table = fit_table(rows, "log")
    said = sum(table.seconds(row.batch, row.prefill_tokens, row.kv_read_tokens) for row in rows)
    assert said == pytest.approx(sum(row.seconds for row in rows), rel=0.02)


def test_few_steps_are_enough_for_what_they_say() -> None:
    table = fit_table(scattered(40, 0.0), "log", max_knots=3)
    assert table.seconds(30, 0, 1_000_000) == pytest.approx(seconds(30, 0, 1_000_000), rel=0.25)
    assert all(value >= 0 for value in table.values)


def test_a_full_grid_is_taken_as_it_is() -> None:
    assert fit_table(GRID, "log") == TABLE


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (StepRow(1, 0, 0, 0.0), "log: step 1: seconds is 0.0; it must be more than 0"),
        (StepRow(1, -5, 0, 1.0), "log: step 1: prefill_tokens is -5; it must be 0 or more"),
        (StepRow(1, 0, 0, float("nan")), "log: step 1: seconds is nan"),
    ],
)
def test_impossible_steps(row: StepRow, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        fit_table([StepRow(1, 0, 0, 1.0), row], "log")
    assert message in raised.value.message


def test_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text("\n\n")
    with pytest.raises(ConfigError, match=r"steps.jsonl: no steps"):
        load_steps(str(tmp_path / "steps.jsonl"))


def test_logs_are_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    lines = [
        {"batch": r.batch, "prefill_tokens": r.prefill_tokens, "kv_read_tokens": r.kv_read_tokens, "seconds": r.seconds}
        for r in GRID
    ]
    path.write_text("".join(json.dumps({**line, "rank": 3}) + "\n" for line in lines))
    assert load_steps(str(path)) == TABLE
    path.write_text('{"batch": 1}\n')
    with pytest.raises(ConfigError, match=r"steps.jsonl: line 1: .*missing required field"):
        read_log(path)
    with pytest.raises(ConfigError, match="cannot read"):
        read_log(tmp_path / "none.jsonl")


def test_published_steps_of_glm_on_gb10() -> None:
    """T9: eight prompts of 6k tokens, one a step; 0.25 s for a step without. At interval N, with 7 (N - 1) of those."""
    model = MeasuredModel(load_steps("glm-5.3-flash-4xgb10-dcp4"))
    alone = model.step_s([StepShape(chunks=(Chunk(6000),))]).total_s
    beside = model.step_s([StepShape(5, 30_000, 1, (Chunk(6000),))]).total_s
    decode = model.step_s([StepShape(7, 42_000)])
    assert alone == beside == 2.6 and decode.total_s == decode.measured_s == 0.25
    assert [round(8 * alone + 7 * (n - 1) * decode.total_s, 9) for n in (8, 2, 1)] == [33.05, 22.55, 20.8]


def test_a_group_waits_for_its_slowest_rank() -> None:
    model = MeasuredModel(TABLE, ranks=3)
    found = model.step_s([StepShape(1, 0), StepShape(8, 500_000), StepShape(2, 0, 1, (Chunk(512, 50_000),))])
    assert found.slowest_rank == 2 and found.total_s == pytest.approx(seconds(3, 512, 50_000))
    assert found.path == "measured" and found.limit == "measured"
    with pytest.raises(ValueError, match="1 shapes for 3 ranks"):
        model.step_s([StepShape()])
