"""Replayed agents and clients that go away, on tiers that fail at random: nothing may hang, leak or be miscounted.

    python -m benchmarks.kv_faults --trace FOLDER --seconds 1800 --json benchmarks/results/kv_faults.json

The engine runs with a device too small for its sessions, a host tier too small for the rest, and a disk; its tiers
raise, stall, flip bits and fill up (`kv_faults_engine`). Afterwards every block must be free or cached, the core's
invariants
hold, counters add up, and a prompt that was answered before all this is answered with the same tokens. Exits with 1 if
anything is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
from pathlib import Path
import signal
import sys
import tempfile
import time
from typing import Any

from benchmarks.peer_client import Endpoint, complete
from benchmarks.soak import clients
import httpx

from samovar.cli.surroundings import cache_dir
from samovar.core.stats import EngineStats
from samovar.models.locate import DEFAULT_MODEL, locate
from samovar.runner.client import EngineClient
from samovar.runner.config import EngineProcessConfig
from samovar.serve.config import ServeConfig
from samovar.serve.run import listen, serve
from samovar.text.checkpoint import load_text
from samovar.workload.result import bench_result, write_result

QUIET_S = 45.0
"""After the load: longer than the longest deadline of a transfer."""
PROBES = [[1000 + 7 * i + 31 * j for i in range(900 + 50 * j)] for j in range(4)]


def config_of(options: argparse.Namespace, disk: str) -> EngineProcessConfig:
    return EngineProcessConfig(
        model=options.model,
        cache_dir=str(cache_dir()),
        num_gpu_blocks_override=options.device_blocks,
        kv_offloading_size=options.host,
        kv_disk_path=disk,
        kv_disk_size=options.disk,
        kv_verify=options.verify,
    )


async def answers(http: httpx.AsyncClient, url: str) -> list[list[int]]:
    found = [await complete(http, Endpoint(url, "vllm", "default"), prompt, 24) for prompt in PROBES]
    return [answer.token_ids for answer in found]


async def replay(options: argparse.Namespace, url: str, folder: str) -> int:
    """Its exit code. What it writes goes into `folder`."""
    command = [sys.executable, "-m", "samovar.cli.main", "bench", "replay", "--url", url, "--scale", "0.0625"]
    command += [word for trace in options.trace for word in ("--trace", str(trace.absolute()))]
    command += ["--concurrency", "4", "--time-scale", "0.25", "--max-failed", "1.0", "--duration", str(options.seconds)]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    if process.returncode:
        print(errors.decode()[-2000:], file=sys.stderr)
    return process.returncode or 0


def miscounted(stats: EngineStats) -> list[str]:
    """What must be equal and is not."""
    pairs = {
        "cached tokens by tier": (sum(stats.cached_tokens_by_tier.values()), stats.prompt_tokens_cached),
        "computed and cached": (stats.prompt_tokens_computed + stats.prompt_tokens_cached, stats.prompt_tokens),
        "failed loads by reason": (
            sum(count for reason, count in stats.failed_load_reasons.items() if reason != "late"),
            stats.failed_load_blocks - stats.failed_load_reasons.get("late", 0),
        ),
    }
    wrong = [f"{name}: {a} and {b}" for name, (a, b) in pairs.items() if a != b]
    if stats.prompt_tokens_cached > stats.ceiling_tokens:
        wrong.append(f"hits above the ceiling: {stats.prompt_tokens_cached} > {stats.ceiling_tokens}")
    return wrong


async def soak(options: argparse.Namespace, disk: str) -> tuple[dict[str, Any], list[str]]:
    checkpoint = await asyncio.to_thread(locate, options.model, cache_dir())
    text = load_text(checkpoint.path)
    engine = await EngineClient.start(config_of(options, disk), module="benchmarks.kv_faults_engine")
    server = ServeConfig(model=options.model, port=0)
    listener = listen(server)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    serving = asyncio.create_task(serve(engine, text.tokenizer, text.template, server, listener))
    wrong: list[str] = []
    async with httpx.AsyncClient(timeout=600) as http:
        before = await answers(http, url)
        began = time.monotonic()
        leaving, code = await asyncio.gather(
            clients(url, options.clients, options.seconds, 0.4, 1),
            asyncio.wait_for(replay(options, url, disk), options.seconds + 600),
        )
        await asyncio.sleep(QUIET_S)
        after = await answers(http, url)
        await asyncio.sleep(QUIET_S)
    await engine.check()
    stats = await engine.stats()
    report = await engine.cache_report()
    held = stats.num_blocks - stats.num_free_blocks - stats.num_cached_blocks
    os.kill(os.getpid(), signal.SIGTERM)
    await serving
    await engine.close()
    wrong += miscounted(stats)
    wrong += [f"{held} blocks leaked"] if held else []
    wrong += ["the same prompts were answered with other tokens"] if after != before else []
    unused = [tier for tier in ("host", "disk") if not stats.cached_tokens_by_tier.get(tier)]
    wrong += [f"nothing was found in {tier}: its faults were not tried" for tier in unused]
    wrong += [f"the replay ended with {code}"] if code else []
    wrong += [f"{leaving['errors']} requests failed"] if leaving["errors"] else []
    wrong += [f"{stats.differing_blocks} wrong blocks were delivered"] if stats.differing_blocks else []
    found = {
        "seconds": time.monotonic() - began,
        "clients": leaving,
        "prompt_tokens": stats.prompt_tokens,
        "cached_by_tier": stats.cached_tokens_by_tier,
        "failed_loads": stats.failed_load_reasons,
        "verified_blocks": stats.verified_blocks,
        "tiers": {tier.tier: {"stored": tier.stored_blocks, "failed": tier.failed} for tier in report.tiers},
        "wrong": wrong,
    }
    return found, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, nargs="+", required=True)
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--device-blocks", type=int, default=600)
    parser.add_argument("--host", default="768MiB")
    parser.add_argument("--disk", default="3GiB")
    parser.add_argument("--verify", type=int, default=4)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="samovar-faults-") as disk:
        found, wrong = asyncio.run(soak(options, disk))
    print(json.dumps(found, indent=2))
    if options.json is not None:
        settings = {key: str(value) for key, value in vars(options).items() if key not in ("json", "trace")}
        write_result(bench_result("kv faults", settings, found), options.json)
    print("FAILED" if wrong else "passed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
