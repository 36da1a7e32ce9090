"""docs/simulator.md shows the result file's rows, all of them, and every miss is a known one with its reason."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.sim_published_form import Figure, at_least, between, points, within
from benchmarks.sim_published_page import BEGIN, DOCS, END, RESULT, notes, rows_in, table, write_docs
from benchmarks.sim_published_rows import ROWS

RESULTS = rows_in(json.loads(RESULT.read_text()))


def test_the_page_shows_the_result_file(tmp_path: Path) -> None:
    text = DOCS.read_text()
    shown = text.split(BEGIN)[1].split(END)[0]
    assert table(RESULTS) in shown and notes(RESULTS) in shown
    copy = tmp_path / "simulator.md"
    copy.write_text(text)
    write_docs(RESULTS, copy)
    assert copy.read_text() == text


def test_every_row_was_run_as_it_is_described_now() -> None:
    assert {row["name"]: row["what"] for row in RESULTS} == {row.name: row.what for row in ROWS}
    assert all(set(row["runs"]) == set(known.runs) for row, known in zip(RESULTS, ordered(), strict=True))
    assert [row["name"] for row in RESULTS if row["fitted"]] == ["T6"]


def ordered() -> list:
    return [next(row for row in ROWS if row.name == found["name"]) for found in RESULTS]


def test_verdicts_follow_from_what_was_simulated() -> None:
    for row, known in zip(RESULTS, ordered(), strict=True):
        for figure, again in zip(row["figures"], known.judge(row["runs"]), strict=True):
            assert (figure["name"], figure["verdict"], figure["tolerance"]) == (
                again.name,
                again.verdict,
                again.band.words,
            )
            assert again.verdict == "met" or again.reason, f"{row['name']}, {again.name} misses without a reason"


def test_bands() -> None:
    def verdict(measured: float, band) -> str:
        return Figure("f", "", measured, band).verdict

    assert verdict(109, within(100, 0.1)) == "met" and verdict(111, within(100, 0.1)) == "miss"
    assert verdict(91.9, points(94, 2)) == "miss" and verdict(92.1, points(94, 2)) == "met"
    assert verdict(1.5, at_least(1.5)) == "met" and verdict(1.4, at_least(1.5)) == "miss"
    assert verdict(2, between(2, 4)) == "met" and verdict(4.1, between(2, 4)) == "miss"
    assert Figure("f", "", 21090.4, within(1, 1)).shown == "21,090"
    assert Figure("f", "", 0.034567, within(1, 1), "s").shown == "0.0346 s"
