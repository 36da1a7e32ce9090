"""Small agent sessions as a folder of traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def session(name: str, turns: int = 6, first: int = 4000, growth: int = 640, gap_s: float = 1.0) -> dict[str, Any]:
    """One agent whose prompt grows from turn to turn."""
    requests = []
    now = 0.0
    for turn in range(turns):
        length = first + turn * growth
        requests.append(
            {"t": now, "type": "n", "model": "m", "in": length, "out": 64, "hash_ids": list(range(1, length // 64 + 1)),
             "api_time": 0.5}
        )  # fmt: skip
        now += 0.5 + gap_s
    return {"id": name, "models": ["m"], "block_size": 64, "hash_id_scope": "local", "tool_tokens": 128,
            "system_tokens": 64, "requests": requests}  # fmt: skip


def write(folder: Path, count: int = 4, **fields: Any) -> Path:
    folder.mkdir()
    for number in range(count):
        name = f"s{number}"
        (folder / f"{name}.json").write_text(json.dumps(session(name, **fields)))
    return folder
