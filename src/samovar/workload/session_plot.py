"""One session drawn over time: lanes of the agents, their contexts, and what the server has to do meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from samovar.workload.quantities import share_text, time_text, tokens_text
from samovar.workload.reuse import find_reuse
from samovar.workload.session import Call, SessionTree, Stream
from samovar.workload.session_spans import Span, idle_spans, in_flight, spans_of

MAIN, AGENT, AUX = "#2563a8", "#3a8a55", "#8257a5"
TOOL, JOIN, USER, IDLE = "#f2b56b", "#cfd8e3", "#f3f4f6", "#f4d9d9"
NEW = "#c2410c"
LANE_PX = 30
THIN_SHARE = 0.0015
"""Calls are drawn at least this wide, as a share of the session; the hover text tells their true time."""


def session_figure(session: SessionTree) -> go.Figure:
    """Made for a width of 1280 pixels."""
    lanes = [*session.streams]
    lane_px = LANE_PX * (len(lanes) + 1)
    height = 250 + lane_px + 420
    figure = make_subplots(
        rows=3,
        cols=1,
        shared_xaxes=True,
        row_heights=[lane_px, 260, 130],
        vertical_spacing=60 / height,
        subplot_titles=("agents", "context of each call, in tokens", _server_title(session)),
    )
    figure.update_annotations(font={"size": 13}, x=0, xanchor="left")
    unit_s, unit = (60.0, "minutes") if session.duration_s > 300 else (1.0, "seconds")
    _draw_lanes(figure, session, unit_s)
    _draw_contexts(figure, session, unit_s)
    _draw_server(figure, session, unit_s)
    figure.update_layout(
        title={"text": _title(session), "font": {"size": 17}, "x": 0.01, "y": 1 - 22 / height, "yanchor": "top"},
        template="plotly_white",
        barmode="overlay",
        bargap=0.25,
        height=height,
        margin={"l": 150, "r": 30, "t": 120, "b": 60},
        legend={"orientation": "h", "x": 0, "y": 1 + 66 / height, "yanchor": "bottom", "traceorder": "normal"},
        hoverlabel={"align": "left"},
    )
    figure.update_xaxes(title=f"{unit} since the session began", row=3, col=1)
    figure.update_xaxes(range=[_zero(session) / unit_s, (_zero(session) + session.duration_s * 1.01) / unit_s])
    return figure


def session_page(session: SessionTree) -> str:
    """The figure as an HTML file that needs nothing else."""
    page: str = session_figure(session).to_html(
        include_plotlyjs=True, full_html=True, config={"displaylogo": False, "responsive": True}
    )
    return page


_LOOKS = {
    "tool": ("tool call", TOOL),
    "join": ("waits for sub-agents", JOIN),
    "user": ("waits for the user", USER),
}


def _draw_lanes(figure: go.Figure, session: SessionTree, unit_s: float) -> None:
    thin_s = THIN_SHARE * session.duration_s
    spans = [(stream, span) for stream in session.streams for span in spans_of(stream, session)]
    for kind, (name, colour) in _LOOKS.items():
        chosen = [(stream, span) for stream, span in spans if span.kind == kind]
        if chosen:
            figure.add_trace(_bars(chosen, name, [colour] * len(chosen), 0.0, unit_s), row=1, col=1)
    shown: set[str] = set()
    for stream in session.streams:
        colour = colour_of(stream)
        calls = [(stream, span) for s, span in spans if s is stream and span.kind == "call"]
        trace = _bars(calls, _ROLE_NAMES[stream.role], [colour] * len(calls), thin_s, unit_s)
        trace.update(legendgroup=stream.role, showlegend=stream.role not in shown)
        shown.add(stream.role)
        figure.add_trace(trace, row=1, col=1)
        if stream.spawn_turn is not None and stream.parent is not None:
            _draw_link(figure, session, stream, unit_s)
    names = [lane_name(stream) for stream in session.streams]
    figure.update_yaxes(autorange="reversed", categoryorder="array", categoryarray=names, showgrid=False, row=1, col=1)


_ROLE_NAMES = {"main": "call of the main agent", "subagent": "call of a sub-agent", "aux": "side call"}


def colour_of(stream: Stream) -> str:
    return {"main": MAIN, "subagent": AGENT, "aux": AUX}[stream.role]


def lane_name(stream: Stream) -> str:
    return f"{stream.id} ({stream.kind})" if stream.kind else stream.id


def _bars(
    chosen: Sequence[tuple[Stream, Span]], name: str, colours: list[str], least_s: float, unit_s: float
) -> go.Bar:
    line = {"width": 0.5, "color": "#aab2bd"} if colours[0] == USER else {"width": 0}
    return go.Bar(
        base=[span.start_s / unit_s for _, span in chosen],
        x=[max(span.end_s - span.start_s, least_s) / unit_s for _, span in chosen],
        y=[lane_name(stream) for stream, _ in chosen],
        orientation="h",
        name=name,
        marker={"color": colours, "line": line},
        text=[span.text for _, span in chosen],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
    )


def _draw_link(figure: go.Figure, session: SessionTree, stream: Stream, unit_s: float) -> None:
    """From the parent's lane down to where the sub-agent starts, and back up to where it is waited for."""
    assert stream.parent is not None and stream.spawn_turn is not None
    parent = session.stream(stream.parent)
    ends: list[tuple[float, float]] = [(parent.turns[stream.spawn_turn].end_s, stream.start_s)]
    if stream.join_turn is not None:
        ends.append((parent.turns[stream.join_turn].start_s, stream.end_s))
    for there_s, here_s in ends:
        figure.add_trace(
            go.Scatter(
                x=[there_s / unit_s, here_s / unit_s],
                y=[lane_name(parent), lane_name(stream)],
                mode="lines",
                line={"width": 1, "color": "#7a8290", "dash": "dot"},
                hoverinfo="skip",
                showlegend=False,
            ),
            row=1,
            col=1,
        )


def _draw_contexts(figure: go.Figure, session: SessionTree, unit_s: float) -> None:
    calls = list(session.calls())
    found = find_reuse([call.turn.blocks for call in calls]).hit_blocks * session.block_tokens
    width_s = max(0.004 * session.duration_s, 0.5)
    for stream in session.streams:
        own = [(call, int(hit)) for call, hit in zip(calls, found, strict=True) if call.stream is stream]
        x = [call.turn.start_s / unit_s for call, _ in own]
        widths = [max(width_s, call.turn.end_s - call.turn.start_s) / unit_s for call, _ in own]
        reused = [min(hit, call.turn.input_tokens) for call, hit in own]
        texts = [_context_text(call, hit) for call, hit in own]
        total = [call.turn.input_tokens for call, _ in own]
        for values, base, colour, name in (
            (reused, [0] * len(own), colour_of(stream), "reused"),
            ([t - r for t, r in zip(total, reused, strict=True)], reused, NEW, "new tokens of a call"),
        ):
            figure.add_trace(
                go.Bar(
                    x=x, y=values, base=base, width=widths, offset=0, name=name, text=texts, textposition="none",
                    marker={"color": colour, "line": {"width": 0}}, opacity=0.8,
                    hovertemplate="%{text}<extra></extra>",
                    showlegend=name != "reused" and stream is session.main, legendgroup="new" if base else None,
                ),
                row=2, col=1,
            )  # fmt: skip
    figure.update_yaxes(rangemode="tozero", tickformat="~s", row=2, col=1)


def _context_text(call: Call, hit: int) -> str:
    turn = call.turn
    reused = min(hit, turn.input_tokens)
    share = reused / max(1, turn.input_tokens)
    return (
        f"{lane_name(call.stream)}, call {call.turn_index}<br>{turn.input_tokens:,} tokens in: {reused:,} seen before "
        f"({share_text(share)}), {turn.input_tokens - reused:,} new<br>{turn.output_tokens:,} out"
    )


def _draw_server(figure: go.Figure, session: SessionTree, unit_s: float) -> None:
    times, depths = in_flight(session)
    figure.add_trace(
        go.Scatter(
            x=[t / unit_s for t in times], y=depths, line={"shape": "hv", "width": 1, "color": MAIN}, fill="tozeroy",
            fillcolor="rgba(37,99,168,0.45)", name="calls in flight", showlegend=False,
            hovertemplate="%{y} calls in flight<extra></extra>",
        ),
        row=3, col=1,
    )  # fmt: skip
    top = max(depths)
    idle = idle_spans(session)
    figure.add_trace(
        go.Bar(
            x=[a / unit_s for a, _ in idle], width=[(b - a) / unit_s for a, b in idle], y=[top] * len(idle), offset=0,
            name="server idle", marker={"color": IDLE, "line": {"width": 0}}, text=[time_text(b - a) for a, b in idle],
            textposition="none", hovertemplate="idle for %{text}<extra></extra>",
        ),
        row=3, col=1,
    )  # fmt: skip
    for a, b in idle:
        if b - a > 0.04 * session.duration_s:
            figure.add_annotation(
                x=(a + b) / 2 / unit_s, y=top / 2, text=f"idle {time_text(b - a)}", showarrow=False,
                font={"size": 11, "color": "#7a3b3b"}, row=3, col=1,
            )  # fmt: skip
    figure.update_yaxes(dtick=max(1, round(top / 4)), range=[0, top * 1.08], row=3, col=1)


def _zero(session: SessionTree) -> float:
    return min(stream.start_s for stream in session.streams)


def _server_title(session: SessionTree) -> str:
    idle_s = sum(b - a for a, b in idle_spans(session))
    share = share_text(idle_s / session.duration_s) if session.duration_s else "0%"
    return f"server: calls in flight; idle {share} of the time"


def _title(session: SessionTree) -> str:
    calls = list(session.calls())
    hits = find_reuse([call.turn.blocks for call in calls]).hit_blocks * session.block_tokens
    total = sum(call.turn.input_tokens for call in calls)
    reused = sum(min(int(hit), call.turn.input_tokens) for hit, call in zip(hits, calls, strict=True))
    agents = sum(stream.role == "subagent" for stream in session.streams)
    peak = max(call.turn.input_tokens for call in calls)
    return (
        f"{session.id}: {len(calls)} calls, {agents} sub-agents, {time_text(session.duration_s)}, "
        f"up to {tokens_text(peak)} tokens of context, {share_text(reused / max(1, total))} seen before"
    )
