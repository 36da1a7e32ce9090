"""Recorded sessions: what is written, what is not, and what a crash leaves."""

from __future__ import annotations

from hashlib import sha256
import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.base.errors import ConfigError, TraceError
from samovar.base.keys import extend_keys, join_keys, pack_tokens, root_key
from samovar.workload import recording
from samovar.workload.load import make_load
from samovar.workload.reading import read_session, read_sessions
from samovar.workload.recording import RecordedCall, Recorder
from samovar.workload.recording_journal import finish_journal, read_journal

KEY_TOKENS = 16
SECRET = list(range(1000, 1400))


def _call(
    tokens: list[int], start_s: float, *, session: str = "client-session", parent: str = "", tenant: str = "t",
    length_s: float = 1.0,
) -> RecordedCall:  # fmt: skip
    keys = join_keys(extend_keys(root_key(b"n", tenant.encode()), pack_tokens(tokens), KEY_TOKENS))
    return RecordedCall(
        tenant, session, parent, keys, len(tokens), 7, start_s, start_s + length_s, "tea", "end_turn", 0.25
    )


def _recorder(folder: Path, label: str = "run") -> Recorder:
    return Recorder(folder, label, KEY_TOKENS)


def test_a_session_becomes_a_trace(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path)
    recorder.add(_call(SECRET[:200], 100.0))
    recorder.add(_call(SECRET[:300], 110.5))
    recorder.add(_call([*SECRET[:130], *[5] * 100], 120.0))
    recorder.close()
    assert [path.name for path in tmp_path.iterdir()] == ["run-0001.json"]
    session = read_session(tmp_path / "run-0001.json")
    assert (session.id, session.block_tokens) == ("run-0001", 64)
    turns = [turn for stream in session.streams for turn in stream.turns]
    assert [turn.start_s for turn in turns] == [0, 10.5, 20]
    assert [turn.blocks.tolist() for turn in turns] == [[1, 2, 3], [1, 2, 3, 4], [1, 2, 5]]
    assert [(turn.input_tokens, turn.output_tokens) for turn in turns] == [(200, 7), (300, 7), (230, 7)]
    assert (turns[0].model, turns[0].stop, turns[0].ttft_s, turns[0].api_time_s) == ("tea", "end_turn", 0.25, 1.0)


def test_nothing_of_text_keys_or_clients_is_written(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path)
    call = _call(SECRET, 5.0, session="alice@example.com", tenant="sk-secret")
    recorder.add(call)
    during = (tmp_path / "run-0001.journal").read_bytes()
    recorder.close()
    written = during + (tmp_path / "run-0001.json").read_bytes()
    for secret in (b"alice", b"sk-secret", call.keys[:16], call.keys[:16].hex().encode(), str(SECRET[0]).encode()):
        assert secret not in written
    assert sha256(pack_tokens(SECRET)).hexdigest().encode() not in written


def test_sub_agents_hang_below_their_session(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path)
    recorder.add(_call(SECRET[:128], 0, session="root"))
    recorder.add(_call(SECRET[200:300], 2, session="child", parent="root"))
    recorder.add(_call(SECRET[300:400], 2.5, session="grandchild", parent="child"))
    recorder.add(_call(SECRET[:200], 9, session="root"))
    recorder.close()
    session = read_session(tmp_path / "run-0001.json")
    links = [(s.id, s.marked, s.spawn_turn, s.join_turn, s.start_s) for s in session.streams]
    assert links == [
        ("main", False, None, None, 0),
        ("agent_001", True, 0, 1, 2),
        ("agent_002", True, 0, 1, 2.5),
    ]


def test_a_child_may_end_before_its_parents_first_call(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path)
    recorder.add(_call(SECRET[200:300], 2, session="child", parent="root"))
    recorder.add(_call(SECRET[:128], 0, session="root", length_s=30))
    recorder.close()
    session = read_session(tmp_path / "run-0001.json")
    assert [(s.id, s.start_s) for s in session.streams] == [("main", 0), ("agent_001", 2)]


def test_calls_without_a_session_find_theirs_by_prompt(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path)
    recorder.add(_call(SECRET[:128], 0, session=""))
    recorder.add(_call(SECRET[200:330], 1, session=""))
    recorder.add(_call(SECRET[:256], 2, session=""))
    recorder.add(_call(SECRET[:256], 2, session="", tenant="other"))
    recorder.close()
    assert sorted(s.num_turns for s in read_sessions([tmp_path])) == [1, 1, 2]


def test_a_crash_loses_nothing_that_was_finished(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path)
    recorder.add(_call(SECRET[:128], 0))
    recorder.add(_call(SECRET[:256], 3))
    journal = tmp_path / "run-0001.journal"
    with journal.open("ab") as file:
        file.write(journal.read_bytes().splitlines()[-1][:20])
    _recorder(tmp_path, "next").close()
    assert [path.name for path in tmp_path.iterdir()] == ["run-0001.json"]
    assert read_session(tmp_path / "run-0001.json").num_turns == 2


def test_a_damaged_journal_is_kept_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = tmp_path / "old.journal"
    journal.write_bytes(b'{"kind":"session","id":"x","block_tokens":64}\n?\n{"kind":"call"}\n')
    with pytest.raises(TraceError, match=r"old\.journal: line 2"):
        finish_journal(journal)
    _recorder(tmp_path).close()
    assert "old.journal: line 2" in caplog.text
    assert journal.exists()
    journal.write_bytes(b'{"kind":"session","id":"x","block_tokens":64}\n')
    assert finish_journal(journal) is None
    assert not journal.exists()


def test_names_are_never_used_twice(tmp_path: Path) -> None:
    for _ in range(2):
        recorder = _recorder(tmp_path)
        recorder.add(_call(SECRET[:128], 0))
        recorder.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-0001.json", "run-0002.json"]


def test_silent_sessions_are_finished(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path)
    recorder.add(_call(SECRET[:128], 0, session="a"))
    recorder.add(_call(SECRET[:128], recording.IDLE_S / 2, session="b"))
    recorder.add(_call(SECRET[:128], recording.IDLE_S + 5, session="b"))
    assert (tmp_path / "run-0001.json").exists()
    assert recorder.num_open == 1
    recorder.add(_call(SECRET[:192], recording.IDLE_S + 9, session="a"))
    recorder.close()
    assert [s.num_turns for s in read_sessions([tmp_path])] == [1, 2, 1]


def test_not_too_many_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_OPEN", 3)
    recorder = _recorder(tmp_path)
    for number in range(9):
        recorder.add(_call(SECRET[:64], number, session=f"s{number}"))
    assert recorder.num_open <= 4
    recorder.close()
    assert len(list(read_sessions([tmp_path]))) == 9


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--record-trace"):
        _recorder(tmp_path / "file" / "x")


def test_a_failing_disk_does_not_reach_the_caller(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "gone"
    recorder = _recorder(folder)
    folder.rmdir()
    recorder.add(_call(SECRET[:64], 0))
    assert "recording a session failed" in caplog.text
    recorder.close()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 1), min_size=1, max_size=5)), max_size=8))
def test_reuse_is_recorded_exactly(calls: list[tuple[int, list[int]]]) -> None:
    """Ids repeat exactly where 64-token blocks of the prompts did, in one session with sub-agents."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as name:
        recorder = _recorder(Path(name))
        seen: set[tuple[int, ...]] = set()
        expected = 0
        for at, (stream, word) in enumerate(calls):
            tokens = [token for letter in word for token in [letter] * 64]
            recorder.add(
                _call(
                    tokens,
                    at,
                    length_s=0.5,
                    session=f"s{stream}" if stream else "root",
                    parent="root" if stream else "",
                )
            )
            prefixes = [tuple(word[: depth + 1]) for depth in range(len(word))]
            expected += sum(prefix in seen for prefix in prefixes)
            seen.update(prefixes)
        for journal in Path(name).iterdir():
            session = read_journal(journal)
            assert session is not None
            assert int(make_load([session]).hit_blocks.sum()) == expected
            assert json.loads(journal.read_text().splitlines()[0])["block_tokens"] == 64
        recorder.close()
        assert sum(s.num_turns for s in read_sessions([Path(name)])) == len(calls) if calls else True


def test_probes_are_not_recorded(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path)
    for name in (recording.PROBE_SESSION, f"{recording.PROBE_SESSION}-7", f"not-{recording.PROBE_SESSION}"):
        recorder.add(_call(SECRET[:128], 0, session=name))
    assert recorder.num_open == 1
    recorder.close()
    assert [s.num_turns for s in read_sessions([tmp_path])] == [1]
