"""Whether contexts stay warm, over HTTP with a real model: `python -m benchmarks.keep_warm evict|restart|burst`.

- evict: more sessions than the device holds, with tiers below it and without, against a device that holds everything;
- restart: kill -9 three seconds after the last turn; how much of every session the disk gives back;
- burst: a parent waits for its sub-agents on a device too small for all of them, under two retention policies.

Servers run one after the other; with `--reps` in turn, so that slow changes of the machine hit all alike. Prints a
table, writes JSON, and exits with 1 when tokens differ, a request fails or too little was warm.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
import random
import signal
from statistics import median
import sys
import tempfile
import time
from typing import Any

from benchmarks.peer_client import Answer, complete
from benchmarks.peer_scenarios import Agents, Prompt, continued, prompt
from benchmarks.peer_servers import Running, Server
import httpx
from rich.console import Console
from rich.table import Table

from samovar.workload.result import bench_result, write_result

BLOCK = 16
DEVICE_TOKENS = 11_520
QUIET_S = 3.0
"""Between the last turn and the kill."""


@dataclass(frozen=True)
class Turn:
    """One answer; `full_tokens` is what an ideal cache has of its prompt."""

    session: int
    turn: int
    full_tokens: int
    answer: Answer


def server(name: str, port: int, *flags: str) -> Server:
    command = (sys.executable, "-m", "samovar.cli.main", "serve", "--port", str(port), "--no-cache-log", *flags)
    return Server(name, f"http://127.0.0.1:{port}", "vllm", command=command, note=" ".join(flags))


def full_blocks(tokens: int) -> int:
    return max(0, tokens) // BLOCK * BLOCK


async def sessions(
    client: httpx.AsyncClient, running: Running, load: Agents, seed: int
) -> tuple[list[Turn], list[Prompt]]:
    """All sessions at once, each turn after the one before it. Returns the turns and each session's history."""
    rng = random.Random(seed)
    histories = [prompt(rng, load.first_tokens) for _ in range(load.sessions)]
    added = [[prompt(rng, load.added_tokens) for _ in range(load.turns)] for _ in range(load.sessions)]
    turns: list[Turn] = []

    async def one(number: int) -> None:
        held = 0
        for turn in range(load.turns):
            if turn:
                histories[number] = histories[number] + added[number][turn]
            asked = histories[number]
            answer = await complete(client, running.server.endpoint, asked, load.output_tokens)
            turns.append(Turn(number, turn, min(held, full_blocks(len(asked) - 1)), answer))
            histories[number] = continued(asked, answer)
            held = full_blocks(len(histories[number]) - 1)  # the last token generated has no KV

    await asyncio.gather(*(one(number) for number in range(load.sessions)))
    return turns, histories


@asynccontextmanager
async def started(one: Server, client: httpx.AsyncClient, logs: Path):
    running = await Running.start(one, client, logs / f"{one.name}.log")
    try:
        yield running
    finally:
        running.stop()


def figures(turns: Sequence[Turn], wall_s: float) -> dict[str, float]:
    prompts = sum(turn.answer.prompt_tokens for turn in turns)
    cached, ideal = sum(turn.answer.cached_tokens for turn in turns), sum(turn.full_tokens for turn in turns)
    later = [1e3 * turn.answer.first_s for turn in turns if turn.turn and not turn.answer.error]
    return {
        "wall_s": wall_s,
        "errors": sum(bool(turn.answer.error) for turn in turns),
        "computed_prompt_tokens": prompts - cached,
        "fewest_possible_tokens": prompts - ideal,
        "computed_over_fewest": (prompts - cached) / (prompts - ideal),
        "hit_share": cached / prompts,
        "later_turn_ttft_ms": median(later) if later else 0.0,
    }


def same_tokens(runs: Sequence[Sequence[Turn]]) -> bool:
    ids = [{(turn.session, turn.turn): turn.answer.token_ids for turn in run} for run in runs]
    return all(other == ids[0] for other in ids)


async def evict(options: argparse.Namespace, client: httpx.AsyncClient, logs: Path) -> tuple[dict[str, Any], bool]:
    load = Agents(options.sessions, options.turns, 1500, 150, 48)
    small = ("--num-gpu-blocks-override", str(DEVICE_TOKENS // BLOCK))
    servers = [
        server("unlimited", 8211),
        server("tiers", 8212, *small, "--kv-offloading-size", options.host),
        server("no-tiers", 8213, *small),
    ]
    servers = [one for one in servers if one.name in options.servers.split(",")]
    seen: dict[str, list[dict[str, float]]] = {one.name: [] for one in servers}
    fine = True
    for rep in range(options.reps):
        runs: list[list[Turn]] = []
        for one in servers:
            async with started(one, client, logs) as running:
                # As much as what is measured: memory that was never written costs more than the bytes that go there.
                await sessions(client, running, load, 10_000 + rep)
                begin = time.perf_counter()
                turns, _ = await sessions(client, running, load, rep)
                seen[one.name].append(figures(turns, time.perf_counter() - begin))
                runs.append(turns)
        fine &= same_tokens(runs) and not any(run[-1]["errors"] for run in seen.values())
    medians = {name: {key: median(run[key] for run in runs) for key in runs[0]} for name, runs in seen.items()}
    wall = {name: found["wall_s"] / medians["unlimited"]["wall_s"] for name, found in medians.items()}
    return {"medians": medians, "wall_over_unlimited": wall, "same_tokens": fine, "runs": seen}, fine


async def restart(options: argparse.Namespace, client: httpx.AsyncClient, logs: Path) -> tuple[dict[str, Any], bool]:
    load = Agents(options.sessions, options.turns, 1500, 150, 48)
    with tempfile.TemporaryDirectory(prefix="samovar-disk-", dir=options.disk) as folder:
        flags = ("--num-gpu-blocks-override", str(DEVICE_TOKENS // BLOCK), "--kv-offloading-size", options.host)
        one = server("disk", 8214, *flags, "--kv-disk-path", folder, "--kv-disk-size", "16GiB")
        running = await Running.start(one, client, logs / "before.log")
        try:
            _, histories = await sessions(client, running, load, 1)
            await asyncio.sleep(QUIET_S)
        finally:
            running.send(signal.SIGKILL)
            running.stop()
        begin = time.perf_counter()
        async with started(one, client, logs) as again:
            start_s = time.perf_counter() - begin
            rng = random.Random(2)
            shares: list[float] = []
            for history in histories:
                full = full_blocks(len(history) - 1)
                answer = await complete(client, again.server.endpoint, history + prompt(rng, 150), 8)
                shares.append(answer.cached_tokens / full)
    found = {"sessions": len(shares), "worst_share": min(shares), "median_share": median(shares), "start_s": start_s}
    return found, min(shares) >= 0.95


async def burst(options: argparse.Namespace, client: httpx.AsyncClient, logs: Path) -> tuple[dict[str, Any], bool]:
    """Context of the parent: P; tier: 2.25 P; four children that grow to P / 2 over four turns, taking turns."""
    parent_tokens = options.parent_tokens
    blocks = parent_tokens * 9 // 4 // BLOCK
    found: dict[str, Any] = {}
    for policy in ("lru", "agent"):
        flags = (
            "--num-gpu-blocks-override",
            str(blocks),
            "--max-model-len",
            str(parent_tokens * 2),
            "--retention-policy",
            policy,
        )
        async with started(server(policy, 8215, *flags), client, logs) as running:
            found[policy] = await _burst(client, running, parent_tokens)
    return found, found["agent"] >= 0.95


async def _burst(client: httpx.AsyncClient, running: Running, parent_tokens: int) -> float:
    rng = random.Random(3)
    turns = 4
    asked = prompt(rng, parent_tokens - 48)
    names = {"session_id": "parent"}
    answer = await complete(client, running.server.endpoint, asked, 48, extra=names)
    history = continued(asked, answer)
    children = [prompt(rng, parent_tokens // 2 // turns - 48) for _ in range(4)]
    for _ in range(turns):
        for number, child in enumerate(children):
            names = {"session_id": f"child-{number}", "parent_session_id": "parent"}
            reply = await complete(client, running.server.endpoint, child, 48, extra=names)
            children[number] = continued(child, reply) + prompt(rng, parent_tokens // 2 // turns - 48)
    full = full_blocks(len(history) - 1)
    last = await complete(client, running.server.endpoint, history + prompt(rng, 64), 8, extra={"session_id": "parent"})
    return last.cached_tokens / full


def show(console: Console, what: str, found: dict[str, Any]) -> None:
    table = Table(title=what)
    rows = found.get("medians", {"": {k: v for k, v in found.items() if isinstance(v, float | int)}})
    table.add_column("")
    for name in rows:
        table.add_column(name, justify="right")
    for key in next(iter(rows.values())):
        table.add_row(key, *(f"{row[key]:,.3f}" for row in rows.values()))
    console.print(table)
    for key in ("wall_over_unlimited", "same_tokens"):
        if key in found:
            console.print(f"{key}: {found[key]}")


async def run(options: argparse.Namespace) -> int:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="samovar-logs-") as folder:
        logs = options.logs or Path(folder)
        logs.mkdir(parents=True, exist_ok=True)
        async with httpx.AsyncClient(timeout=options.timeout_s, limits=httpx.Limits(max_connections=None)) as client:
            found, fine = await {"evict": evict, "restart": restart, "burst": burst}[options.what](
                options, client, logs
            )
    show(console, options.what, found)
    if options.json is not None:
        private = ("json", "logs", "disk")  # paths of this machine
        config = {key: str(value) for key, value in vars(options).items() if key not in private}
        write_result(bench_result(f"keep_warm {options.what}", config, found, repeats=options.reps), options.json)
    console.print("fine" if fine else "NOT as it should be")
    return 0 if fine else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keep_warm", description=__doc__)
    parser.add_argument("what", choices=["evict", "restart", "burst"])
    parser.add_argument("--sessions", type=int, default=16)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--reps", type=int, default=1)
    parser.add_argument("--servers", default="unlimited,tiers,no-tiers", help="of evict")
    parser.add_argument("--host", default="4", help="of --kv-offloading-size")
    parser.add_argument("--disk", type=Path, help="folder for the disk tier (a temporary one)")
    parser.add_argument("--parent-tokens", type=int, default=3200)
    parser.add_argument("--timeout-s", type=float, default=900.0)
    parser.add_argument("--logs", type=Path)
    parser.add_argument("--json", type=Path)
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
