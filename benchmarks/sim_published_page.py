"""The result file of the published figures, and the table that docs/simulator.md shows of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
import json
from pathlib import Path
from typing import Any

from benchmarks.sim_published_form import Figure, Row, Seen
from benchmarks.sim_published_rows import ROWS

from samovar.workload.result import bench_result, git_revision, write_result

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "sim_published.json"
DOCS = ROOT / "docs" / "simulator.md"
BEGIN, END = "<!-- published figures -->", "<!-- /published figures -->"
SHORT = "a share of its length"


def record(rows: Sequence[Row], seen: Mapping[str, Mapping[str, Seen]], share: float, path: Path) -> None:
    """Into the result file, in which other rows stay as they are."""
    known = {row["name"]: row for row in rows_in(json.loads(path.read_text()))} if path.is_file() else {}
    for row in rows:
        known[row.name] = {
            "name": row.name,
            "what": row.what,
            "fitted": row.fitted,
            "share": share,
            "revision": git_revision(),
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "figures": [_figure(figure) for figure in row.judge(seen[row.name])],
            "runs": {
                name: {key: float(f"{value:.6g}") for key, value in one.items()} for name, one in seen[row.name].items()
            },
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    ordered = [known[row.name] for row in ROWS if row.name in known]
    write_result(bench_result("sim_published", {"rows": [row["name"] for row in ordered]}, {"rows": ordered}), path)


def _rounded(seen: Seen) -> Seen:
    return {key: float(f"{value:.6g}") for key, value in seen.items()}


def _figure(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "published": figure.published,
        "measured": figure.measured,
        "shown": figure.shown,
        "tolerance": figure.band.words,
        "verdict": figure.verdict,
        "reason": figure.reason if figure.verdict == "miss" else "",
        "otherwise": figure.otherwise if figure.verdict == "miss" else "",
    }


def rows_in(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(result["measured"]["rows"])


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| | | published | simulated | tolerance | |", "|---|---|---|---|---|---|"]
    for row in rows:
        name = f"{row['name']}{' (fitted)' if row['fitted'] else ''}"
        for figure in row["figures"]:
            cells = (name, figure["name"], figure["published"], figure["shown"], figure["tolerance"], figure["verdict"])
            lines.append("| " + " | ".join(cells) + " |")
            name = ""
    return "\n".join(lines)


def notes(rows: Sequence[Mapping[str, Any]]) -> str:
    """What each row simulates, and why figures miss."""
    lines = []
    for row in rows:
        length = "" if row["share"] == 1 else f" Simulated for {100 * row['share']:g} % of the length."
        lines.append(f"- **{row['name']}**: {row['what']}.{length}")
        reasons: dict[str, list[str]] = {}
        for figure in row["figures"]:
            if figure["verdict"] == "miss":
                otherwise = f" ({figure['otherwise']})" if figure["otherwise"] else ""
                reasons.setdefault(figure["reason"], []).append(figure["name"] + otherwise)
        lines += [f"  Misses {'; '.join(names)}: {reason}." for reason, names in reasons.items()]
    return "\n".join(lines)


def write_docs(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    text = path.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n{table(rows)}\n\n{notes(rows)}\n{END}{after}")
