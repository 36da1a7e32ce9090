"""What `samovar serve` says when it serves."""

from __future__ import annotations

import logging

import pytest
from rich.console import Console

from samovar.cli.serve_start import start_line
from samovar.cli.surroundings import set_up_log
from samovar.core.ports import EngineInfo


def info(**settings: str) -> EngineInfo:
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    return EngineInfo(8192, 16, 1000, b"n", 256, 320, 49152, dtype="bfloat16", settings=named)


@pytest.mark.parametrize(
    ("settings", "places"),
    [
        ({}, "1000 blocks of 16 tokens"),
        ({"kv_host_blocks": "0", "kv_disk_blocks": "0"}, "1000 blocks of 16 tokens"),
        (
            {"kv_host_blocks": "5000", "kv_disk_blocks": "0"},
            "1000 blocks of 16 tokens on the device, 5000 in host memory",
        ),
        (
            {"kv_host_blocks": "5000", "kv_disk_blocks": "90000"},
            "1000 blocks of 16 tokens on the device, 5000 in host memory, 90000 on disk",
        ),
    ],
)
def test_every_tier_is_in_the_start_line(settings: dict[str, str], places: str) -> None:
    assert start_line(info(**settings), "tea", "127.0.0.1", 8000) == (
        f"serving tea on http://127.0.0.1:8000/v1 (bfloat16, context 8192, {places}, 320 tokens per step)"
    )


def test_a_line_in_a_log_begins_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        set_up_log(Console(stderr=True, force_terminal=False), debug=False)
        logging.getLogger("samovar.test").info("boiling")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    line = capsys.readouterr().err
    assert line[:4].isdigit() and line.endswith("INFO samovar.test: boiling\n")
