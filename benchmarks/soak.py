"""Many streaming clients, a part of them going away at random moments: nothing may leak, fail or grow.

    python benchmarks/soak.py --seconds 180 --clients 64 --json benchmarks/results/soak.json

Starts an engine and an HTTP server, and the clients in a process of their own. Afterwards the engine's invariants are
recomputed, every block must be free or cached, and the log must be free of errors. Exits with 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
from pathlib import Path
import random
import signal
import sys
import time

import httpx

from samovar.cli.surroundings import cache_dir
from samovar.models.locate import DEFAULT_MODEL, locate
from samovar.runner.client import EngineClient
from samovar.runner.config import EngineProcessConfig
from samovar.serve.config import ServeConfig
from samovar.serve.run import listen, serve
from samovar.text.checkpoint import load_text
from samovar.workload.result import bench_result, write_result

MiB = 1 << 20


class Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.name}: {record.getMessage()}")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def clients(url: str, count: int, seconds: float, leave: float, seed: int) -> dict[str, int]:
    """Each client asks again and again: new questions and continued conversations, streamed."""
    counts = {"finished": 0, "left": 0, "errors": 0, "refused": 0}
    end = time.monotonic() + seconds

    async def one(number: int, http: httpx.AsyncClient) -> None:
        rng = random.Random(seed * 1000 + number)
        history: list[dict[str, str]] = []
        while time.monotonic() < end:
            if len(history) > 6 or rng.random() < 0.3:
                history = [{"role": "system", "content": f"You are helper {number % 8}. " * rng.randrange(1, 12)}]
            history.append({"role": "user", "content": f"Tell me about the number {rng.randrange(10_000)}."})
            body = {"messages": history, "max_tokens": rng.randrange(1, 40), "stream": True, "seed": rng.randrange(99)}
            patience = rng.random() * 6 if rng.random() < leave else None
            try:
                answer = await asyncio.wait_for(ask(http, body), patience)
                history.append({"role": "assistant", "content": answer})
                counts["finished"] += 1
            except TimeoutError:
                counts["left"] += 1
            except httpx.HTTPStatusError as error:
                counts["refused" if error.response.status_code == 429 else "errors"] += 1
            except (httpx.HTTPError, RuntimeError) as error:
                print(f"client {number}: {error!r}", file=sys.stderr)
                counts["errors"] += 1

    async def ask(http: httpx.AsyncClient, body: dict[str, object]) -> str:
        text = []
        async with http.stream("POST", "/v1/chat/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line[6:])
                    if "error" in event:
                        raise RuntimeError(event["error"])
                    text += [c["delta"].get("content") or "" for c in event["choices"]]
        return "".join(text)

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits) as http:
        await asyncio.gather(*(one(number, http) for number in range(count)))
    return counts


async def soak(args: argparse.Namespace) -> int:
    errors = Errors()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger().addHandler(errors)
    checkpoint = await asyncio.to_thread(locate, args.model, cache_dir())
    text = load_text(checkpoint.path)
    config = EngineProcessConfig(
        model=args.model,
        cache_dir=str(cache_dir()),
        kv_cache_memory_bytes=args.kv_mib * MiB,
        num_threads=args.num_threads,
    )
    engine = await EngineClient.start(config)
    server = ServeConfig(model=args.model, port=0)
    listener = listen(server)
    port = listener.getsockname()[1]
    serving = asyncio.create_task(serve(engine, text.tokenizer, text.template, server, listener))
    flags = ["--as-clients", f"http://127.0.0.1:{port}", "--clients", str(args.clients), "--seconds", str(args.seconds)]
    flags += ["--leave", str(args.leave), "--seed", str(args.seed)]
    load = await asyncio.create_subprocess_exec(sys.executable, __file__, *flags, stdout=asyncio.subprocess.PIPE)
    memory: list[tuple[float, float, float]] = []
    began = time.monotonic()
    waiting = asyncio.create_task(load.communicate())
    while not waiting.done():
        now = time.monotonic() - began
        memory.append((round(now, 1), resident_bytes(os.getpid()) / MiB, resident_bytes(engine.pid) / MiB))
        await asyncio.wait({waiting}, timeout=1)
    counts = json.loads((await waiting)[0])
    await asyncio.sleep(1)
    await engine.check()
    stats = await engine.stats()
    held = stats.num_blocks - stats.num_free_blocks - stats.num_cached_blocks
    async with httpx.AsyncClient() as http:
        metrics = (await http.get(f"http://127.0.0.1:{port}/metrics")).text
    usage = next(float(x.split()[-1]) for x in metrics.splitlines() if x.startswith("vllm:kv_cache_usage_perc{"))
    os.kill(os.getpid(), signal.SIGTERM)
    code = await serving
    await engine.close()

    # The pool's pages are committed as they are first used, so the first half is growth that has to be.
    half = [row for row in memory if row[0] >= args.seconds / 2]
    growth = {"api_mib": half[-1][1] - half[0][1], "engine_mib": half[-1][2] - half[0][2]}
    measured = {
        "requests": counts,
        "preemptions": stats.preemptions,
        "hit_rate": stats.prefix_hits_tokens / max(1, stats.prefix_queries_tokens),
        "held_blocks": held,
        "kv_cache_usage_perc": usage,
        "growth_in_second_half": growth,
        "memory_mib": memory[:: max(1, len(memory) // 30)],
        "log_warnings": errors.lines,
    }
    print(json.dumps({**measured, "memory_mib": "..."}, indent=2))
    if args.json:
        settings = {k: v for k, v in vars(args).items() if k not in ("json", "as_clients")}
        write_result(bench_result("soak", settings, measured, seed=args.seed), Path(args.json))
    failed = held or usage or errors.lines or counts["errors"] or code or max(growth.values()) > args.growth_mib
    print("FAILED" if failed else "passed")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--leave", type=float, default=0.3, help="share of requests whose client goes away")
    parser.add_argument("--kv-mib", type=int, default=256)
    parser.add_argument("--num-threads", type=int, default=None)
    parser.add_argument("--growth-mib", type=float, default=30, help="most growth of a process in the second half")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    parser.add_argument("--as-clients", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.as_clients:
        print(json.dumps(asyncio.run(clients(args.as_clients, args.clients, args.seconds, args.leave, args.seed))))
        return 0
    return asyncio.run(soak(args))


if __name__ == "__main__":
    sys.exit(main())
