"""A child process's last words, and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from samovar.runner.child import Child

WORDS = """import sys
sys.stdin.readline()
print("Fatal: no memory for the kernel", file=sys.stderr)
print("WARNING samovar.runner.boot: max_model_len is 10", file=sys.stderr)
print("INFO samovar.runner.boot: ready", file=sys.stderr)
print("2026-11-30 15:02:01,250 INFO samovar.runner.boot: prefills 900 tokens/s", file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.asyncio
async def test_what_a_log_says_is_not_taken_for_the_cause_of_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "last_words.py").write_text(WORDS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    child = Child("last_words", b"{}")
    assert await child.wait() == 3 and child.last_line == "Fatal: no memory for the kernel"
    await child.end(1.0)


@pytest.mark.asyncio
async def test_an_error_in_its_log_is_a_cause_without_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (
        "import logging",
        "from samovar.runner.child import LOG_FORMAT",
        "logging.basicConfig(format=LOG_FORMAT)",
        "logging.error('no room')",
    )
    (tmp_path / "timed_words.py").write_text("\n".join(words))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    child = Child("timed_words", b"{}")
    await child.wait()
    assert child.last_line == "ERROR root: no room"
    await child.end(1.0)
