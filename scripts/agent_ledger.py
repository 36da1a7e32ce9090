#!/usr/bin/env python3
"""What each turn of an agent cost, from the log of `samovar serve` (its lines that begin with "cache:").

    python scripts/agent_ledger.py LOG [--min-tokens 1000] [--block-size 16] [--at-least 98]

Per turn: tokens of the prompt, how many of them were cached, the full blocks of the turn before (a server that forgets
nothing finds these, and those of what it generated) and the share of them that was found. Ends with 1 when a turn falls
short of --at-least percent. Prompts shorter than --min-tokens are an agent's calls on the side (titles): they are left
out. A log of one agent at a time: turns are told apart by their order alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
import re
import sys

LINE = re.compile(r"cache: (\S+): (\d+) of (\d+) prompt tokens cached, \d+ new: (.*)")


@dataclass(frozen=True)
class Turn:
    id: str
    prompt_tokens: int
    cached_tokens: int
    reason: str


def turns(lines: Iterable[str], min_tokens: int) -> Iterator[Turn]:
    for line in lines:
        found = LINE.search(line)
        if found and int(found[3]) >= min_tokens:
            yield Turn(found[1], int(found[3]), int(found[2]), found[4].strip())


def hit_share(turn: Turn, before: Turn, block_size: int) -> float:
    """Of the full blocks of the turn before, those found by this one."""
    full = before.prompt_tokens // block_size
    return min(turn.cached_tokens // block_size, full) / full if full else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("--min-tokens", type=int, default=1000)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--at-least", type=float, default=98.0, help="percent")
    chosen = parser.parse_args()
    before: Turn | None = None
    short = 0
    print(f"{'turn':>4} {'prompt':>8} {'cached':>8} {'blocks before':>13} {'found':>7}  why no more")
    number = 0
    for number, turn in enumerate(turns(chosen.log.read_text().splitlines(), chosen.min_tokens), 1):
        expected, share = "", ""
        if before is not None:
            found = hit_share(turn, before, chosen.block_size)
            short += 100 * found < chosen.at_least
            expected, share = str(before.prompt_tokens // chosen.block_size), f"{found:.1%}"
        print(f"{number:>4} {turn.prompt_tokens:>8} {turn.cached_tokens:>8} {expected:>13} {share:>7}  {turn.reason}")
        before = turn
    print(f"{number} turns, {short} below {chosen.at_least:g}% of the blocks of the turn before")
    return 1 if short or not number else 0


if __name__ == "__main__":
    sys.exit(main())
