"""docs/simulator.md shows the result of the comparison with the real engine; verdicts follow from its figures."""

from __future__ import annotations

from pathlib import Path

from benchmarks.sim_engine_page import BEGIN, DOCS, END, RESULT, notes, read_result, table, write_docs
from benchmarks.sim_engine_point import BANDS, Band
import pytest

FOUND = read_result(RESULT)


def test_the_page_shows_the_result_file(tmp_path: Path) -> None:
    text = DOCS.read_text()
    shown = text.split(BEGIN)[1].split(END)[0]
    assert table(FOUND) in shown and notes(FOUND) in shown
    copy = tmp_path / "simulator.md"
    copy.write_text(text)
    write_docs(FOUND, copy)
    assert copy.read_text() == text


def test_verdicts_follow_from_what_was_measured() -> None:
    points = FOUND["measured"]["points"]
    assert [point["fitted"] for point in points] == [True] + [False] * (len(points) - 1)
    for point in points:
        assert set(point["figures"]) == set(BANDS)
        for name, found in point["figures"].items():
            middle = sorted(run[name] for run in point["measured"])[len(point["measured"]) // 2]
            assert len(point["measured"]) % 2 == 0 or found["measured"] == middle
            assert found["band"] == BANDS[name].limit
            assert found["holds"] is BANDS[name].holds(found["measured"], found["predicted"])


def test_bands() -> None:
    share, difference = Band(0.1, share=True), Band(0.01, share=False)
    assert share.holds(100, 109) and share.holds(100, 91) and not share.holds(100, 111) and not share.holds(100, 89)
    assert difference.holds(0.8, 0.809) and not difference.holds(0.8, 0.789)
    assert share.error(100, 90) == pytest.approx(-0.1) and difference.error(0.8, 0.9) == pytest.approx(0.1)
