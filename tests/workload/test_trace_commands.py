"""The commands of `samovar trace`, from arguments to files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from samovar.base.errors import ConfigError, SamovarError, TraceError
from samovar.cli.trace import app
from samovar.workload.kv_size import kv_size_of
from samovar.workload.limits import MAX_TIME_S, MAX_TOKENS
from samovar.workload.reading import read_sessions
from samovar.workload.stats import trace_stats
from samovar.workload.stats_rows import stats_blocks

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "traces"
CONTEXT = 8192


def _run(*arguments: object) -> str:
    """Standard output; an error is raised as it is, for `main` to show."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_examples_are_small_and_fit() -> None:
    sessions = list(read_sessions([EXAMPLES]))
    assert len(sessions) == 6
    assert sum(path.stat().st_size for path in EXAMPLES.iterdir()) < 300_000
    assert max(c.turn.input_tokens + c.turn.output_tokens for s in sessions for c in s.calls()) < CONTEXT
    assert any(s.role == "subagent" for session in sessions for s in session.streams)


def test_stats_as_table_json_and_page(tmp_path: Path) -> None:
    page, data = tmp_path / "page.html", tmp_path / "stats.json"
    table = _run("stats", EXAMPLES, "--model", "smollm2-135m", "--html", page, "--json", data)
    for words in ("hit rate ceiling", "Hit rate by KV capacity", "as KV of smollm2-135m", "Sub-agents"):
        assert words in table
    stats = json.loads(data.read_text())
    assert stats["totals"]["sessions"] == 6
    assert stats["kv"]["bytes_per_token"] == 23_040
    assert len(stats["capacity"]["lru"]) == len(stats["capacity"]["tokens"])
    assert "Plotly.newPlot" in page.read_text()


def test_stats_to_stdout_are_json_and_nothing_else() -> None:
    assert json.loads(_run("stats", EXAMPLES, "--json", "-"))["totals"]["sessions"] == 6


def test_bad_files(tmp_path: Path) -> None:
    good = next(EXAMPLES.glob("*.json"))
    (tmp_path / "good.json").write_bytes(good.read_bytes())
    (tmp_path / "bad.json").write_text('{"requests": 3}')
    with pytest.raises(TraceError, match=r"bad\.json: \$\.requests: Expected `array`, got `int`"):
        _run("stats", tmp_path)
    stats = json.loads(_run("stats", tmp_path, "--skip-bad", "--json", "-"))
    assert (stats["totals"]["sessions"], len(stats["skipped"])) == (1, 1)
    (tmp_path / "good.json").unlink()
    with pytest.raises(TraceError, match="no session to describe: all files were skipped"):
        _run("stats", tmp_path, "--skip-bad")


@pytest.mark.parametrize(
    "arguments",
    [
        ("stats", EXAMPLES, "--sessions-at-once", 0),
        ("stats", EXAMPLES, "--kv-element-bytes", 0),
        ("stats", EXAMPLES, "--model", "unknown"),
        ("stats", EXAMPLES / "none"),
        ("stats", EXAMPLES, "--json", "/nowhere/at/all.json"),
        ("stats", EXAMPLES, "--html", "/nowhere/at/all.html"),
        ("plot", EXAMPLES, "--html", "/nowhere/at/all.html"),
        ("scale", EXAMPLES, "--factor", 0.3, "--out", "x"),
        ("scale", EXAMPLES, "--factor", 1e-9, "--out", "x"),
        ("scale", EXAMPLES, "--out", EXAMPLES),
        ("scale", EXAMPLES, "--out", EXAMPLES, "--overwrite"),
        ("scale", next(EXAMPLES.glob("*.json")), "--out", EXAMPLES, "--overwrite"),
    ],
)
def test_what_cannot_work_is_said(
    arguments: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {path: path.read_bytes() for path in EXAMPLES.iterdir()}
    with pytest.raises(SamovarError):
        _run(*arguments)
    assert list(tmp_path.iterdir()) == []
    assert {path: path.read_bytes() for path in EXAMPLES.iterdir()} == before


def test_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "wrote synth-7-0000.html" in _run("plot", EXAMPLES / "synth-7-0000.json")
    assert "synth-7-0000" in (tmp_path / "synth-7-0000.html").read_text()


def test_synth_twice_gives_the_same_files(tmp_path: Path) -> None:
    options = ("--sessions", 3, "--seed", 9, "--turns-median", 8, "--turns-p90", 12)
    for name in ("a", "b"):
        assert "wrote 3 sessions" in _run("synth", "--out", tmp_path / name, *options)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == ["synth-9-0000.json", "synth-9-0001.json", "synth-9-0002.json"]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--out"):
        _run("synth", "--out", tmp_path / "file" / "x", *options)


def test_scale(tmp_path: Path) -> None:
    _run("scale", "--factor", 0.25, "--out", tmp_path, EXAMPLES)
    before, after = list(read_sessions([EXAMPLES])), list(read_sessions([tmp_path]))
    assert [s.id for s in after] == [s.id for s in before]
    assert sum(s.num_turns for s in after) == sum(s.num_turns for s in before)
    for old, new in zip(before, after, strict=True):
        assert new.main.turns[0].input_tokens == old.main.turns[0].input_tokens // 4


@pytest.mark.parametrize("command", [("scale", EXAMPLES, "--factor", 0.25), ("synth", "--sessions", 2)])
def test_folders_in_use_are_written_into_only_when_asked(tmp_path: Path, command: tuple[object, ...]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    _run(*command, "--out", out)
    written = {path.name: path.read_bytes() for path in out.iterdir()}
    (out / sorted(written)[0]).write_text("changed")
    with pytest.raises(ConfigError, match=rf"--out {out}: the folder is not empty"):
        _run(*command, "--out", out)
    assert (out / sorted(written)[0]).read_text() == "changed"
    _run(*command, "--out", out, "--overwrite")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == written


def test_scaling_leaves_out_what_shrinks_to_nothing_and_says_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["scale", str(EXAMPLES), "--factor", str(1 / 64), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0
    kept = list(read_sessions([tmp_path / "out"]))
    assert f"left out {6 - len(kept)} of 6 sessions" in result.output and 0 < len(kept) < 6
    assert all(any(len(turn.blocks) for s in session.streams for turn in s.turns) for session in kept)


def _extreme(tmp_path: Path) -> Path:
    """Within every limit of a trace, and as large as these allow."""
    value = json.loads((EXAMPLES / "synth-7-0001.json").read_text())
    first, last = value["requests"][0], value["requests"][-1]
    first |= {"out": MAX_TOKENS, "api_time": MAX_TIME_S, "think_time": MAX_TIME_S}
    last |= {"in": MAX_TOKENS, "t": MAX_TIME_S, "think_time": MAX_TIME_S}
    path = tmp_path / "extreme.json"
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize("columns", [40, 80, 140])
def test_rows_keep_their_names_and_figures_whatever_they_are(
    tmp_path: Path, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samovar.cli.trace.output_console", lambda: Console(width=columns, force_terminal=True))
    shown = _run("stats", _extreme(tmp_path), "--kv-element-bytes", 16)
    stats = trace_stats(read_sessions([tmp_path / "extreme.json"]), kv_size_of("llama-3.1-70b", 16))
    assert "…" not in shown
    for block in stats_blocks(stats):
        for row in block.rows:
            assert any(line.startswith(row[0]) and line.split() == " ".join(row).split() for line in shown.splitlines())


def test_sessions_at_once_are_those_there_are() -> None:
    assert "All 6 sessions at once" in _run("stats", EXAMPLES)
    assert "2 sessions at a time" in _run("stats", EXAMPLES, "--sessions-at-once", 2)
    assert "One session, at recorded times" in _run("stats", EXAMPLES / "synth-7-0000.json")
