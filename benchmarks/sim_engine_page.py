"""The table that docs/simulator.md shows of a comparison with the real engine."""

from __future__ import annotations

from collections.abc import Mapping
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "sim_engine.json"
DOCS = ROOT / "docs" / "simulator.md"
BEGIN, END = "<!-- against the real engine -->", "<!-- /against the real engine -->"

_SHOWN = {
    "hit_rate": ("hit rate", 100.0, " %"),
    "p50_ttft_s": ("P50 TTFT", 1e3, " ms"),
    "p50_itl_s": ("P50 ITL", 1e3, " ms"),
    "makespan_s": ("makespan", 1.0, " s"),
}


def verdict(point: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    if point["fitted"]:
        return "fitted"
    return "holds" if found["holds"] else "miss"


def table(result: Mapping[str, Any]) -> str:
    lines = ["| | | engine | simulator | error | allowed | own fit | |", "|---|---|---|---|---|---|---|---|"]
    for point in result["measured"]["points"]:
        name = f"{point['name']}, {point['sessions']} sessions"
        for key, found in point["figures"].items():
            title, scale, unit = _SHOWN[key]
            off = " points" if key == "hit_rate" else " %"
            cells = (
                name,
                title,
                f"{scale * found['measured']:.3g}{unit}",
                f"{scale * found['predicted']:.3g}{unit}",
                f"{100 * found['error']:+.1f}{off}",
                f"{100 * found['band']:.0f}{off}",
                f"{100 * found['error_by_its_own_fit']:+.1f}{off}",
                verdict(point, found),
            )
            lines.append("| " + " | ".join(cells) + " |")
            name = ""
    return "\n".join(lines)


def notes(result: Mapping[str, Any]) -> str:
    machine, config, points = result["machine"], result["config"], result["measured"]["points"]
    traces = " and ".join(config["trace"])
    busy = min(point["least_busy_share"] for point in points)
    return (
        f"{machine['cpu']}, {machine['cores']} cores, engine on {config['num_threads']}; {traces} with "
        f"lengths x {config['scale']:g} and gaps x {config['time_scale']:g}; medians of {result['repeats']} rounds; "
        f"the engine computed at least {100 * busy:.0f} % of the time."
    )


def read_result(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def write_docs(result: Mapping[str, Any], path: Path) -> None:
    before, rest = path.read_text().split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n{table(result)}\n\n{notes(result)}\n{END}{after}")
