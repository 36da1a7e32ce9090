"""The picture of a session says what the session is."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
import pytest

from samovar.workload.reading import read_session
from samovar.workload.session import SessionTree
from samovar.workload.session_plot import lane_name, session_figure, session_page
from samovar.workload.session_spans import idle_spans, in_flight, spans_of
from samovar.workload.synth import synthesise
from samovar.workload.synth_config import SynthConfig
from tests.workload.brute_force import Access
from tests.workload.made_up import loads, session_of


@pytest.fixture
def session(real_traces: Path) -> SessionTree:
    return read_session(real_traces / "trace_0277.json")


def test_lanes(session: SessionTree) -> None:
    figure = session_figure(session)
    lanes = [lane_name(stream) for stream in session.streams]
    assert lanes == ["main", "agent_001 (Explore)", "agent_002 (Explore)", "agent_003 (Explore)", "agent_004 (Plan)"]
    drawn = {y for trace in figure.data if trace.type == "bar" and trace.yaxis == "y" for y in trace.y}
    assert drawn == set(lanes)
    assert list(figure.layout.yaxis.categoryarray) == lanes
    calls = [t for t in figure.data if t.name in ("call of the main agent", "call of a sub-agent")]
    assert [len(trace.x) for trace in calls] == [9, 4, 12, 17, 11]
    assert sum(trace.showlegend is not False for trace in calls) == 2


def test_what_lies_between_calls(session: SessionTree) -> None:
    spans = spans_of(session.main, session)
    kinds = [span.kind for span in spans]
    assert kinds[:4] == ["call", "join", "call", "tool"]
    assert kinds.count("call") == 9
    assert kinds.count("join") == 2
    assert spans[1].text == "waits for 3 sub-agents, 3 min"
    for before, after in pairwise(spans):
        assert after.start_s == pytest.approx(before.end_s)


def test_contexts_add_up(session: SessionTree) -> None:
    figure = session_figure(session)
    bars = [trace for trace in figure.data if trace.type == "bar" and trace.yaxis == "y2"]
    assert len(bars) == 2 * len(session.streams)
    shown = sum(sum(trace.y) for trace in bars)
    assert shown == sum(call.turn.input_tokens for call in session.calls())


def test_pages_need_nothing_else(session: SessionTree) -> None:
    page = session_page(session)
    assert "Plotly.newPlot" in page
    assert '<script src="' not in page
    assert "trace_0277: 53 calls, 4 sub-agents, 14 min" in page


@settings(deadline=None)
@given(loads())
def test_calls_in_flight(accesses: list[Access]) -> None:
    session = session_of(accesses)
    times, depths = in_flight(session)
    assert depths[-1] == 0
    for at, depth in zip(times, depths, strict=True):
        assert depth == sum(a.start_s <= at < a.end_s for a in accesses)
    for begun, ended in idle_spans(session):
        assert not any(a.start_s < ended and a.end_s > begun for a in accesses)


def test_any_session_can_be_drawn() -> None:
    for session in synthesise(SynthConfig(sessions=3, seed=5, subagent_share=1)):
        assert session_figure(session).layout.height > 600
