"""The report page: complete, self-contained, escaped, and honest about what is missing."""

from __future__ import annotations

from html import escape
from html.parser import HTMLParser
import json
from pathlib import Path
import re

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.base.errors import ConfigError
from samovar.workload.metrics import Point, summarise
from samovar.workload.metrics_cost import price_of
from samovar.workload.metrics_formulas import FORMULAS
from samovar.workload.metrics_record import RequestRecord
from samovar.workload.report import report_page, write_report
from samovar.workload.report_data import ReportRun, frontier, in_flight, named_apart
from tests.workload.test_metrics import record


def run(name: str = "one", *, stopped: str = "") -> ReportRun:
    records: list[RequestRecord] = []
    points: list[Point] = []
    for lanes in (1, 2):
        mine = [
            record(concurrency=lanes, lane=lane, turn=turn, start_s=turn * 5.0, first_s=turn * 5.0 + 1,
                   last_s=turn * 5.0 + 2, end_s=turn * 5.0 + 2 + lane / 10)
            for lane in range(lanes)
            for turn in range(4)
        ]  # fmt: skip
        mine.append(record(concurrency=lanes, status="failed", error="HTTP 500: <broken>", first_s=None, last_s=None))
        records += mine
        points.append(
            summarise(
                mine, concurrency=lanes, price=price_of("H200"), slo={"interactivity": 7},
                complete=not (stopped and lanes == 2), stopped=stopped if lanes == 2 else "",
            )
        )  # fmt: skip
    return ReportRun(name, {"server": "<tea>"}, tuple(points), tuple(records))


class Structure(HTMLParser):
    VOID = ("meta", "br", "link")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.summaries = 0
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.summaries += tag == "summary"
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_from_elsewhere() -> None:
    page = report_page([run()], "Tea & bread")
    structure = Structure()
    structure.feed(page)
    assert structure.open == []
    assert structure.links == []
    assert "<title>Tea &amp; bread</title>" in page
    assert page.count("/*! For license information") + page.count("plotly.js v") >= 1


def test_every_figure_has_its_formula_one_click_away() -> None:
    page = report_page([run()], "t")
    for key in FORMULAS:
        assert escape(FORMULAS[key]) in page, key
    charts = len(re.findall(r'class="plotly-graph-div"', page))
    assert charts == 6 + 2 * 2
    assert page.count("<details class='how'>") >= charts + 2


def test_texts_from_outside_are_escaped() -> None:
    page = report_page([run("<b>")], "<script>")
    assert "<tea>" not in page and "&lt;tea&gt;" in page
    assert "<broken>" not in page.replace("\\u003cbroken\\u003e", "")
    assert "<title><script>" not in page


def test_a_partial_run_says_so_and_why() -> None:
    assert "Partial." not in report_page([run()], "t")
    page = report_page([run(stopped="the server died")], "t")
    assert "<b>Partial.</b> one, concurrency 2: the server died" in page
    assert "2 (partial)" in page


def test_several_runs_lie_over_each_other() -> None:
    page = report_page([run("A"), run("B")], "t")
    for name in ("A: frontier", "B: frontier", "A · 1", "B · 2"):
        assert json.dumps(name) in page, name
    assert "A: concurrency 2: sessions" in page
    assert "A: concurrency 1: sessions" not in page


def test_runs_of_one_name_are_told_apart() -> None:
    assert [r.name for r in named_apart([run("a"), run("a"), run("b"), run("a")])] == ["a", "a (2)", "b", "a (3)"]


def test_nothing_to_report_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to report"):
        report_page([ReportRun("x", {}, (), ())], "t")
    with pytest.raises(ConfigError, match="cannot write"):
        write_report("page", tmp_path / "absent" / "report.html")


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_the_frontier_is_what_no_other_point_beats(points: list[tuple[int, int]]) -> None:
    kept = frontier([(float(x), float(y)) for x, y in points])
    beaten = {(x, y) for x, y in points if any((a >= x and b >= y) and (a, b) != (x, y) for a, b in points)}
    assert set(kept) == set(points) - beaten
    assert kept == sorted(set(kept), reverse=True)


def test_in_flight_counts() -> None:
    records = [record(start_s=0, end_s=4), record(start_s=1, end_s=3), record(start_s=4, end_s=5)]
    assert in_flight(records) == ([0, 1, 3, 4, 5], [1, 2, 1, 1, 0])
