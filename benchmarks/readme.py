"""Writes the README's measured figures from `benchmarks/results/*.json`; `--check` only says if they are current."""

from __future__ import annotations

import json
from pathlib import Path
import sys
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- measured -->", "<!-- /measured -->"


def load(name: str) -> dict[str, Any] | None:
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def rows() -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    if core := load("core"):
        m, c, cpu = core["measured"], core["config"], core["machine"]["cpu"]
        what = f"scheduling core, {c['requests']} requests decoding at {c['context']:,} tokens, one core of {cpu}"
        out.append(
            (f"{what}: plan + apply per step, median / P99", f"{m['step_median_ms']:.2f} / {m['step_p99_ms']:.2f} ms")
        )
        out.append(("the same: largest encoded plan", f"{m['plan_bytes']:,} bytes"))
        prompt = f"a prompt of {c['admit_tokens']:,} tokens, {m['admit_found_tokens']:,} of them cached"
        out.append((f"{prompt}: hash, look up, admit", f"{m['admit_total_ms']:.1f} ms"))
    if soak := load("soak"):
        m, c, r = soak["measured"], soak["config"], soak["measured"]["requests"]
        what = f"{c['clients']} streaming clients for {c['seconds']:.0f} s, {r['left']} of {r['left'] + r['finished']} "
        growth = max(m["growth_in_second_half"].values())
        out.append(
            (
                f"{what}requests abandoned: leaked blocks, errors, growth",
                f"{m['held_blocks']}, {r['errors']}, {growth:.1f} MiB",
            )
        )
    for name in PEERS:
        if peers := load(name):
            out += peer_rows(peers)
    return out


PEERS = ("peers", "peers_streams", "peers_noamx")
"""Results of `benchmarks.peers`: one load after the other, more servers for single streams, both without AMX."""


PEER_FIGURES = (
    ("single512", "stream_tokens_per_s", "one stream after a prompt of 512 tokens: tokens per second", "{:.0f}"),
    ("single512", "ttft_ms", "the same: time to the first token, ms", "{:.0f}"),
    ("deep4096", "stream_tokens_per_s", "one stream at a depth of 4,096: tokens per second", "{:.0f}"),
    ("deep4096", "ttft_ms", "the same: time to the first token, ms", "{:,.0f}"),
    ("conc8", "output_tokens_per_s", "eight streams at once: tokens per second together", "{:.0f}"),
    ("conc8", "longest_gap_ms", "the same: longest gap between a stream's tokens, ms", "{:.0f}"),
    ("agent", "wall_s", "four agents of twelve turns: seconds", "{:.1f}"),
    ("agent", "later_turn_ttft_ms", "the same: time to the first token of later turns, ms", "{:.0f}"),
)


def peer_rows(peers: dict[str, Any]) -> list[tuple[str, str]]:
    """Every server's median beside the first one's."""
    notes = {server["name"]: server["note"] for server in peers["config"]["servers"]}
    servers = ", ".join(f"{name} ({note})" for name, note in notes.items())
    out = [(f"over HTTP, {peers['machine']['cores']} cores, {peers['repeats']} alternating repeats", servers)]
    for scenario, figure, what, form in PEER_FIGURES:
        of = peers["measured"]["summary"].get(scenario)
        if of is None:
            continue
        out.append((what, " / ".join(form.format(of[name]["median"][figure]) for name in notes)))
    return out


def main() -> int:
    readme = ROOT / "README.md"
    text = readme.read_text()
    table = "\n".join(f"| {what} | {value} |" for what, value in [("what", "measured"), ("---", "---"), *rows()])
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    new = f"{text[:begin]}\n{table}\n{text[end:]}"
    if "--check" in sys.argv:
        return int(new != text)
    readme.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
