"""The official harness's figures beside ours, from its own artifacts (`scripts/agentx.sh -r`).

    python benchmarks/agentx.py agentx-results/artifacts [--tokenizer FOLDER]

Exits with 1 unless the theoretical hit rates are equal to the block, the hit rate that the harness measured is within a
point of the ceiling of the prompts it sent, and our metrics give its percentiles to 1% from its records.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
import json
from pathlib import Path
import sys
from typing import Any

from samovar.base.errors import SamovarError
from samovar.bench.agentx_tokens import tokeniser
from samovar.workload.metrics import Point
from samovar.workload.metrics_agentx import SAME, SUMMARY, THEORETICAL, read_export, tokenizer_folder
from samovar.workload.metrics_agentx_prompts import Tokenise

TIMES = {
    "time_to_first_token": "ttft_s",
    "inter_token_latency": "itl_s",
    "full_response_inter_token_latency": "full_itl_s",
    "request_latency": "latency_s",
}


def show(name: str, theirs: str, ours: str, good: bool) -> bool:
    print(f"{name:40} {theirs:>24} {ours:>24}  {'' if good else 'DIFFERENT'}".rstrip())
    return good


def percentiles(summary: Mapping[str, Any], point: Point) -> bool:
    good = True
    for theirs, ours in TIMES.items():
        expected, found = summary.get(theirs, {}).get("p90"), getattr(point, ours).p90
        if expected is None or found is None:
            continue
        same = abs(1000 * found / expected - 1) <= 0.01
        good &= show(f"P90 {theirs}, ms", f"{expected:.3f}", f"{1000 * found:.3f}", same)
    return good


def compare(folder: Path, tokenise: Tokenise) -> bool:
    run = read_export(folder, tokenise)
    (point,) = run.points
    summary = json.loads((folder / SUMMARY).read_bytes())
    print(f"{run.facts['source']}: {point.ok} measured, {point.failed} failed, {point.cut} cut off")
    told = run.facts.get(THEORETICAL, "none")
    print(f"theoretical hit rate: {told}")
    print(f"ceiling: {run.facts.get('ceiling', 'none')}\n")
    print(f"{'':40} {'harness':>24} {'ours':>24}")
    measured = summary.get("overall_usage_prompt_cache_read_pct", {}).get("avg")
    rate, ceiling = point.hit_rate, point.hit_ceiling
    good = told.endswith(SAME)
    if measured is not None and rate is not None:
        good &= show("hit rate measured", f"{measured:.3f}%", f"{100 * rate:.3f}%", abs(100 * rate - measured) < 1e-6)
    if rate is None or ceiling is None:
        return show("hit rate ceiling of the prompts", "", "unknown", False)
    good &= show("hit rate ceiling of the prompts", "", f"{100 * ceiling:.3f}%", abs(ceiling - rate) <= 0.01)
    finest = read_export(folder, tokenise, 1).points[0].hit_ceiling or 0.0
    show("  if blocks were of one token", "", f"{100 * finest:.3f}%", True)
    counted = sum(record.planned_prompt_tokens for record in run.of(point) if record.status == "ok")
    good &= show("prompt tokens", str(point.prompt_tokens), str(counted), counted == point.prompt_tokens)
    return percentiles(summary, point) and good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifacts", type=Path)
    parser.add_argument("--tokenizer", type=Path, help="the folder that the harness was run with, unless it is gone")
    options = parser.parse_args()
    try:
        tokenizer = options.tokenizer or tokenizer_folder(options.artifacts)
        if tokenizer is None:
            raise SamovarError(f"{options.artifacts} names no tokenizer folder that is still there: give --tokenizer")
        return 0 if compare(options.artifacts, tokeniser(tokenizer)) else 1
    except SamovarError as error:
        print(f"agentx.py: {error.message}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
