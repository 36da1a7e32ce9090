"""Trace files: what they say, and what is said about broken ones."""

from __future__ import annotations

import gzip
from itertools import pairwise
import json
from pathlib import Path
from typing import Any

import pytest

from samovar.base.errors import TraceError
from samovar.workload.kv_size import KVSize
from samovar.workload.reading import ReadCounts, read_file, read_session, read_sessions, trace_files
from samovar.workload.stats import trace_stats
from samovar.workload.stats_rows import stats_blocks
from samovar.workload.weka import parse_weka
from samovar.workload.weka_writer import encode_weka


def _call(t: float, ids: list[int], **more: Any) -> dict[str, Any]:
    return {"t": t, "type": "n", "model": "m", "in": 64 * len(ids), "out": 5, "hash_ids": ids, **more}


def _weka(*requests: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"id": "s", "block_size": 64, "requests": requests, **more}).encode()


def _subagent(t: float, *requests: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"t": t, "type": "subagent", "agent_id": "a1", "subagent_type": "Explore", "requests": requests, **more}


def _parsed(*requests: dict[str, Any], **more: Any) -> Any:
    return parse_weka(_weka(*requests, **more), Path("s.json"))


MAIN = (
    _call(0, [1, 2], api_time=10.0, stop="tool_use"),
    _call(60, [1, 2, 3], api_time=5.0),
    _call(90, [1, 2, 3, 4]),
)


def test_a_session_as_it_stands() -> None:
    session = _parsed(*MAIN, tool_tokens=70, system_tokens=7)
    assert (session.id, session.block_tokens, session.num_turns, session.duration_s) == ("s", 64, 3, 90)
    assert (session.tool_tokens, session.system_tokens) == (70, 7)
    first = session.main.turns[0]
    assert (first.start_s, first.end_s, first.input_tokens, first.stop) == (0, 10, 128, "tool_use")
    assert first.blocks.tolist() == [1, 2]
    assert not first.blocks.flags.writeable
    assert [session.main.gap_s(at) for at in range(3)] == [0, 50, 25]
    assert session.main.turns[2].api_time_s is None


@pytest.mark.parametrize("inner", [(0, 5), (20, 25)], ids=["relative", "absolute"])
def test_inner_times(inner: tuple[float, float]) -> None:
    calls = [_call(inner[0], [9], api_time=1), _call(inner[1], [9, 10], api_time=2)]
    session = _parsed(MAIN[0], _subagent(20, *calls), *MAIN[1:])
    agent = session.stream("a1")
    assert [turn.start_s for turn in agent.turns] == [20, 25]
    assert (agent.parent, agent.spawn_turn, agent.join_turn, agent.kind, agent.marked) == (
        "main",
        0,
        1,
        "Explore",
        True,
    )


def test_a_marker_at_the_end_is_told_from_the_times() -> None:
    """Counted back by its duration it began right after the call at 0 had ended, while another would still run."""
    calls = [_call(0, [9], api_time=1), _call(20, [9, 10], api_time=10)]
    session = _parsed(MAIN[0], _subagent(42, *calls, duration_ms=31_500), *MAIN[1:])
    agent = session.stream("a1")
    assert [turn.start_s for turn in agent.turns] == [10.5, 30.5]
    assert (agent.spawn_turn, agent.join_turn) == (0, 1)


def test_a_marker_at_the_start_stays() -> None:
    calls = [_call(0, [9], api_time=1), _call(20, [9, 10], api_time=10)]
    session = _parsed(MAIN[0], _subagent(11, *calls, duration_ms=31_500), *MAIN[1:])
    assert session.stream("a1").start_s == 11


def test_background_agents_are_not_waited_for() -> None:
    session = _parsed(MAIN[0], _subagent(11, _call(0, [9], api_time=1), status="async_launched"), *MAIN[1:])
    assert session.stream("a1").join_turn is None


def test_background_agents_are_written_as_such() -> None:
    session = _parsed(MAIN[0], _subagent(11, _call(0, [9], api_time=1), status="async_launched"), *MAIN[1:])
    again = parse_weka(encode_weka(session), Path("again.json"))
    assert again.stream("a1").join_turn is None
    row = json.loads(encode_weka(session))["requests"][1]
    assert (row["status"], row["duration_ms"], row["total_tokens"]) == ("async_launched", None, None)


def test_an_agent_that_outlives_the_session_joins_nowhere() -> None:
    session = _parsed(*MAIN, _subagent(91, _call(0, [9], api_time=100)))
    agent = session.stream("a1")
    assert (agent.spawn_turn, agent.join_turn) == (2, None)


def test_real_sub_agents(real_traces: Path) -> None:
    """The markers of these files stand at the end; the parent's next call waits for the last sub-agent."""
    session = read_session(real_traces / "trace_0277.json")
    assert [(s.id, s.kind, len(s.turns), s.spawn_turn, s.join_turn) for s in session.streams] == [
        ("main", "", 9, None, None),
        ("agent_001", "Explore", 4, 0, 1),
        ("agent_002", "Explore", 12, 0, 1),
        ("agent_003", "Explore", 17, 0, 1),
        ("agent_004", "Plan", 11, 6, 7),
    ]
    assert [round(s.start_s, 2) for s in session.streams[1:]] == [19.47, 19.46, 19.47, 385.6]


BROKEN = [
    (b"", "not JSON: Input data was truncated (line 1)"),
    (b'{"requests":[\n{"t":1,,}]}', "(line 2)"),
    (b"[]", "Expected `object`, got `array`"),
    (b"{}", "missing required field `requests`"),
    (_weka(), "$.requests has no call of the main agent"),
    (_weka({"t": 1, "in": "x", "hash_ids": []}), "$.requests[0].in: Expected"),
    (_weka({"t": 1, "in": 3}), "$.requests[0] has no field 'hash_ids'"),
    (_weka({"t": 1, "hash_ids": []}), "$.requests[0] has no field 'in'"),
    (_weka({"in": 1, "hash_ids": []}), "$.requests[0]"),
    (
        _weka(_call(0, [1, 2], **{"in": 64})),
        "$.requests[0].hash_ids has 2 ids; 64 tokens in blocks of 64 have at most 1",
    ),
    (_weka(_call(0, [2**70])), "does not fit into 64 bits"),
    (_weka(_call(0, [1], out=-1)), "$.requests[0].out is -1; it must be from 0"),
    (_weka(_call(0, [1], api_time=-2)), "$.requests[0].api_time is -2"),
    (_weka(MAIN[0], _subagent(5, _call(0, [1]), {"t": 3})), "$.requests[1].requests[1] has no field 'in'"),
    (_weka(MAIN[0], block_size=0), "$.block_size is 0; it must be from 1 to 1048576"),
    (_weka(MAIN[0], block_size=2**70), "$.block_size is 1180591620717411303424; it must be from 1 to 1048576"),
    (_weka(MAIN[0], _call(1, [1], type="x")), "$.requests[1].type is 'x'; a call's is 'n' or 's'"),
    (_weka(_call(0, [1], type="")), "$.requests[0].type is ''; a call's is 'n' or 's'"),
    (
        _weka(MAIN[0], _subagent(5, _subagent(6, _call(6, [1])))),
        "$.requests[1].requests[0].type is 'subagent' inside a sub-agent; a call's is 'n' or 's'",
    ),
    (_weka(MAIN[0], tool_tokens=-1), "$.tool_tokens is -1; it must be from 0 to 1099511627776"),
    (_weka(MAIN[0], system_tokens=2**50), "$.system_tokens is 1125899906842624; it must be from 0 to 1099511627776"),
    (_weka(MAIN[0], _subagent(5, _call(5, [1]), tool_tokens=-7)), "$.requests[1].tool_tokens is -7"),
    (_weka(MAIN[0], _subagent(5, _call(5, [1]), system_tokens=-7)), "$.requests[1].system_tokens is -7"),
    (_weka(_call(1e300, [1])), "$.requests[0].t is 1e+300; it must be at most 1e+10 seconds"),
    (_weka(_call(-1e300, [1])), "$.requests[0].t is -1e+300; it must be"),
    (_weka(_call(0, [1], think_time=1e300)), "$.requests[0].think_time is 1e+300; it must be at most 1e+10 seconds"),
    (_weka(_call(0, [1], api_time=1e300)), "$.requests[0].api_time is 1e+300; it must be a duration from 0 to 1e+10"),
    (_weka(_call(0, [1], ttft=-1)), "$.requests[0].ttft is -1.0; it must be a duration from 0"),
    (_weka(MAIN[0], _subagent(1e300, _call(5, [1]))), "$.requests[1].t is 1e+300"),
    (_weka(MAIN[0], _subagent(5, _call(1e300, [1]))), "$.requests[1].requests[0].t is 1e+300"),
    (
        _weka(MAIN[0], _subagent(5, _call(5, [1]), duration_ms=-3)),
        "$.requests[1].duration_ms is -3.0; it must be a duration from 0 to 1e+13",
    ),
    (_weka(_call(0, [1, 2, 1])), "$.requests[0].hash_ids has the id 1 2 times; an id stands for all that precedes it"),
    (_weka(MAIN[0], _subagent(5, _call(5, [9, 8, 8, 8]))), "$.requests[1].requests[0].hash_ids has the id 8 3 times"),
    (_weka(MAIN[0], hash_id_scope="global"), "$.hash_id_scope is 'global'"),
    (b"\xff\xfe\x00", "not JSON"),
    (b'{"x":' + b"[" * 100_000, "not JSON"),
]


@pytest.mark.parametrize(("data", "reason"), BROKEN, ids=range(len(BROKEN)))
def test_broken_sessions_name_file_and_place(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(data)
    with pytest.raises(TraceError) as caught:
        read_session(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert reason in caught.value.message


def test_prompts_may_have_fewer_ids_than_blocks() -> None:
    """Recorders leave out what changes with every call; what has no id counts as new, and is counted."""
    session = _parsed(MAIN[0], _call(60, [1, 2, 3], **{"in": 64 * 9 + 5}), _call(90, [], **{"in": 64}), _call(95, [7]))
    assert [len(turn.blocks) for _, _, turn in _turns(session)] == [2, 3, 0, 1]
    stats = trace_stats([session], KVSize("m", 1))
    assert stats.totals.unnamed_tokens == 64 * 6 + 64
    assert stats.ceiling.tokens == pytest.approx(128 / (128 + 64 * 9 + 5 + 64 + 64))
    shown = {row[0]: row[1] for block in stats_blocks(stats) for row in block.rows}
    assert shown["tokens without a block id, taken for new"] == "448"
    whole = stats_blocks(trace_stats([_parsed(*MAIN)], KVSize("m", 1)))
    assert not any("without a block id" in row[0] for block in whole for row in block.rows)


def _turns(session: Any) -> list[tuple[int, int, Any]]:
    return [(call.stream_index, call.turn_index, call.turn) for call in session.calls()]


def test_ids_need_not_rise() -> None:
    assert _parsed(_call(0, [5, 3, 9, 1])).main.turns[0].blocks.tolist() == [5, 3, 9, 1]


def test_real_traces_say_nothing_impossible(real_traces: Path) -> None:
    assert sum(s.num_turns for s in read_sessions(sorted(real_traces.glob("trace_*.json")))) > 600


MOONCAKE = b"".join(
    b'{"timestamp":%d,"input_length":%d,"output_length":1,"hash_ids":[0]}\n' % (at, 600 + at) for at in (0, 5)
)
LOG = b"".join(b'{"messages":[{"role":"user","content":"hello"}],"timestamp":%d}\n' % at for at in (1, 2))


@pytest.mark.parametrize("marked", [False, True], ids=["plain", "bom"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    ("name", "data"),
    [("s.json", _weka(*MAIN, id="")), ("m.jsonl", MOONCAKE), ("log.jsonl", LOG), ("w.jsonl", _weka(*MAIN))],
)
def test_marks_and_gzip_change_nothing(tmp_path: Path, name: str, data: bytes, packed: bool, marked: bool) -> None:
    (tmp_path / "as-it-is").mkdir()
    (tmp_path / "as-it-is" / name).write_bytes(data)
    stored = b"\xef\xbb\xbf" * marked + data
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(stored) if packed else stored)
    plain, found = list(read_sessions([tmp_path / "as-it-is"])), list(read_sessions([path]))
    assert [s.id for s in found] == [s.id for s in plain]
    assert [_turn_of(t) for s in found for t in _turns(s)] == [_turn_of(t) for s in plain for t in _turns(s)]
    if packed:  # under whatever name
        (tmp_path / name).write_bytes(path.read_bytes())
        assert [s.id for s in read_sessions([tmp_path / name])] == [s.id for s in plain]


def _turn_of(placed: tuple[int, int, Any]) -> tuple[Any, ...]:
    stream, at, turn = placed
    return stream, at, turn.start_s, turn.input_tokens, turn.output_tokens, turn.blocks.tolist()


def test_folders_hold_packed_traces_too(tmp_path: Path) -> None:
    for name in ("a.json", "b.jsonl"):
        data = _weka(*MAIN) if name == "a.json" else MOONCAKE
        (tmp_path / name).write_bytes(data)
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(data))
    (tmp_path / "c.gz").write_bytes(gzip.compress(b"no trace"))
    assert [file.name for file in trace_files([tmp_path])] == ["a.json", "a.json.gz", "b.jsonl", "b.jsonl.gz"]


@pytest.mark.parametrize("name", ["s.json", "s.json.gz", "m.jsonl"])
@pytest.mark.parametrize("damage", ["cut", "changed", "header"])
def test_damaged_gzip_is_named(tmp_path: Path, name: str, damage: str) -> None:
    data = gzip.compress(_weka(*MAIN) if name.startswith("s") else MOONCAKE * 50)
    damaged = {"cut": data[:-12], "changed": data[:-6] + b"\0\0" + data[-4:], "header": data[:2] + b"\x07" + data[3:]}
    path = tmp_path / name
    path.write_bytes(damaged[damage])
    with pytest.raises(TraceError, match="not a whole gzip file") as caught:
        read_file(path)
    assert caught.value.message.startswith(f"{path}: ")


def test_bad_files_are_skipped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(_weka(*MAIN))
    (tmp_path / "b.json").write_bytes(b"{")
    (tmp_path / "c.jsonl").write_bytes(b'{"timestamp":0,"input_length":600,"output_length":1,"hash_ids":[0,1]}\nx\n')
    (tmp_path / "notes.txt").write_text("no trace")
    counts = ReadCounts()
    assert [s.id for s in read_sessions([tmp_path], skip_bad=True, counts=counts)] == ["s"]
    assert (counts.files, counts.sessions, len(counts.skipped)) == (3, 1, 2)
    assert "c.jsonl: line 2: not JSON" in counts.skipped[1]
    with pytest.raises(TraceError, match=r"b\.json"):
        list(read_sessions([tmp_path]))


def test_a_recording_that_goes_on_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.journal").write_text("")
    with pytest.raises(TraceError, match="1 sessions are still being recorded"):
        list(read_sessions([tmp_path]))


def test_paths_that_hold_nothing(tmp_path: Path) -> None:
    for paths, reason in (([tmp_path], "in this folder"), ([tmp_path / "no"], "no such file"), ([], "no trace files")):
        with pytest.raises(TraceError, match=reason):
            list(read_sessions(paths))
    unknown = tmp_path / "x.jsonl"
    unknown.write_text('{"a": 1}\n')
    with pytest.raises(TraceError, match="none of the known formats"):
        read_file(unknown)


def test_mooncake_conversations(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 1000, "input_length": 1300, "output_length": 50, "hash_ids": [0, 1, 2]},
        {"timestamp": 2000, "input_length": 1100, "output_length": 9, "hash_ids": [0, 5, 6]},
        {"timestamp": 3000, "input_length": 600, "output_length": 9, "hash_ids": [0, 9]},
        {"timestamp": 3500, "input_length": 1700, "output_length": 9, "hash_ids": [0, 10, 11, 12]},
        {"timestamp": 4500, "input_length": 2000, "output_length": 5, "hash_ids": [0, 1, 7, 8]},
    ]
    path = tmp_path / "m.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    sessions = read_file(path)
    assert [[turn.start_s for turn in s.main.turns] for s in sessions] == [[0.0, 3.5], [0.0], [0.0], [0.0]]
    assert [s.start_s for s in sessions] == [1.0, 2.0, 3.0, 3.5]
    assert {s.namespace for s in sessions} == {str(path)}
    assert sessions[0].block_tokens == 512


def test_mooncake_names_sessions_and_delays(tmp_path: Path) -> None:
    rows = [
        {"session_id": "a", "timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]},
        {"session_id": "a", "delay": 2500, "input_length": 600, "output_length": 1, "hash_ids": [3, 4]},
    ]
    path = tmp_path / "m.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    (session,) = read_file(path)
    assert (session.id, [turn.start_s for turn in session.main.turns]) == ("a", [0.0, 2.5])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"input_length": 100}, "at most 1"),
        ({"output_length": -1}, "at least 0"),
        ({"timestamp": -1}, "timestamp is -1"),
        ({"timestamp": 1e300}, "timestamp is 1e+300; a time must be from 0 to 1e+13 ms"),
        ({"timestamp": None, "delay": 1e300}, "delay is 1e+300; a time must be from 0 to 1e+13 ms"),
        ({"output_length": 2**50}, "a length is 1125899906842624; it must be at most 1099511627776"),
        ({"input_length": 2**50}, "a length is 1125899906842624; it must be at most 1099511627776"),
        ({"hash_ids": "x"}, "$.hash_ids"),
        ({"hash_ids": [2**64]}, "64 bits"),
    ],
)
def test_broken_mooncake_lines(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    good = {"timestamp": 0, "input_length": 1000, "output_length": 1, "hash_ids": [0, 1]}
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps(good) + "\n\n" + json.dumps({**good, **change}) + "\n")
    with pytest.raises(TraceError) as caught:
        read_file(path)
    assert caught.value.message.startswith(f"{path}: line 3: ")
    assert reason in caught.value.message


def test_real_mooncake(real_traces: Path) -> None:
    sessions = read_file(real_traces / "mooncake_conversation_3000.jsonl")
    assert sum(s.num_turns for s in sessions) == 3000
    assert all(s.main.turns[at].start_s >= 0 for s in sessions for at in range(s.num_turns))
    for session in sessions:
        for before, after in pairwise(session.main.turns):
            full = before.input_tokens // 512
            assert before.blocks[:full].tolist() == after.blocks[:full].tolist()


def _log(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_openai_logs(tmp_path: Path) -> None:
    system = {"role": "system", "content": "You help. " * 100}
    ask, answer = {"role": "user", "content": "Why? " * 30}, {"role": "assistant", "content": "So. " * 20}
    tool = {"role": "tool", "content": "4", "tool_call_id": "x"}
    first = {"model": "m", "messages": [system, ask]}
    second = {"model": "m", "messages": [system, ask, answer, tool], "stream": True}
    done = {"choices": [{"finish_reason": "tool_calls", "message": answer}], "usage": {"completion_tokens": 21}}
    path = _log(
        tmp_path / "log.jsonl",
        {"body": first, "response": {"body": done}, "timestamp": 1_700_000_000_000, "duration_ms": 1500},
        {**second, "created_at": "2023-11-14T22:13:30+00:00", "session_id": ""},
        {"request": {**first, "messages": [ask]}, "timestamp": 1_700_000_020, "session_id": "other"},
    )
    main, other = read_file(path)
    assert other.id == "other"
    assert other.start_s == 20
    one, two = main.main.turns
    assert (one.start_s, one.end_s, one.stop, one.output_tokens, one.input_types) == (0, 1.5, "tool_use", 21, ("text",))
    assert (two.start_s, two.streaming, two.input_types) == (10, True, ("tool_result",))
    assert two.blocks[: len(one.blocks)].tolist() == one.blocks.tolist()
    assert len(two.blocks) > len(one.blocks) > 3
    assert one.input_tokens // 64 == len(one.blocks)


def test_logs_count_tokens_at_their_own_rate(tmp_path: Path) -> None:
    row = {"messages": [{"role": "user", "content": "x" * 10_000}], "timestamp": 1, "usage": {"prompt_tokens": 1000}}
    (session,) = read_file(_log(tmp_path / "log.jsonl", row))
    assert session.main.turns[0].input_tokens == pytest.approx(1000, abs=64)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": [], "timestamp": 1}, "$.messages is missing"),
        ({"messages": [{"role": "user"}]}, "has no time"),
        ({"messages": [{"role": "user"}], "timestamp": "soon"}, "not a number and not an ISO 8601 time"),
        ([1, '"messages"'], "is no JSON object"),
        ({"messages": [{"role": "user"}], "timestamp": 1e300}, "$.timestamp is 1e+297 s; it must be at most 1e+10 s"),
        ({"messages": [{"role": "user"}], "timestamp": "9999-01-01"}, "$.timestamp is 2.53371e+11 s; it must be"),
        ({"messages": [{"role": "user"}], "timestamp": 1, "latency_ms": 1e300}, "$.latency_ms is 1e+297 s"),
        (
            {"messages": [{"role": "user"}], "timestamp": 1, "usage": {"prompt_tokens": -1}},
            "usage.prompt_tokens is -1; it must be from 0 to 1099511627776",
        ),
        (
            {"messages": [{"role": "user"}], "timestamp": 1, "usage": {"output_tokens": 2**70}},
            "usage.output_tokens is 1180591620717411303424",
        ),
    ],
)
def test_broken_logs(tmp_path: Path, row: Any, reason: str) -> None:
    path = tmp_path / "log.jsonl"
    good = {"messages": [{"role": "user", "content": "a"}], "timestamp": 1}
    path.write_text(json.dumps(good) + "\n" + json.dumps(row))
    with pytest.raises(TraceError) as caught:
        read_file(path)
    assert caught.value.message.startswith(f"{path}: line 2: ")
    assert reason in caught.value.message
