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
