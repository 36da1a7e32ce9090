"""What constrained decoding costs: tokens/s of one engine process, constrained and free by turns in one run.

    python benchmarks/grammar.py --streams 1 8 --repeats 7

Every round decodes the same prompts to the same number of tokens twice: free (ends ignored), then constrained to a JSON
schema whose documents are longer than that; the order changes each round. A round's figure is the tokens of all
streams over the time from the first token to the last, prefill left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from statistics import median
import time

from samovar.base.ids import RequestId
from samovar.base.keys import extend_keys, join_keys, pack_tokens, root_key
from samovar.core.request import Request
from samovar.core.sampling import SamplingParams
from samovar.models.locate import DEFAULT_MODEL, locate
from samovar.runner.client import EngineClient
from samovar.runner.config import EngineProcessConfig
from samovar.text.checkpoint import load_text
from samovar.text.grammar.body import grammar_of
from samovar.text.grammar.schema import json_schema

PLAIN = {
    "type": "array",
    "minItems": 200,
    "items": {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "year": {"type": "integer"},
            "kind": {"enum": ["book", "film", "song", "play"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "rating": {"type": ["number", "null"]},
            "summary": {"type": "string"},
        },
        "required": ["title", "year", "kind", "tags", "rating", "summary"],
        "additionalProperties": False,
    },
}
"""As tools describe their arguments."""
LIMITS = {
    "type": "array",
    "minItems": 200,
    "items": {
        "type": "object",
        "properties": {
            "title": {"type": "string", "minLength": 10, "maxLength": 80},
            "year": {"type": "integer", "minimum": 1800, "maximum": 2030},
            "kind": {"enum": ["book", "film", "song", "play"]},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 4},
            "rating": {"type": ["number", "null"]},
            "summary": {"type": "string", "minLength": 20, "maxLength": 300},
        },
        "required": ["title", "year", "kind", "tags", "rating", "summary"],
        "additionalProperties": False,
    },
}
"""The same with a limit on everything: the most work for masks, since a limit that is near rules long tokens out."""
SCHEMAS = {"plain": PLAIN, "limits": LIMITS}
PROMPT = "Write a JSON array of works of art, each with title, year, kind, tags, rating and summary. Catalogue {}:\n"


class Bench:
    def __init__(self, engine: EngineClient, prompts: list[list[int]], arguments: argparse.Namespace) -> None:
        self._engine, self._prompts, self._arguments = engine, prompts, arguments
        self._number = 0
        self._grammar = grammar_of(json_schema(SCHEMAS[arguments.schema], strict=True, param="schema"), {}).text

    async def rate(self, streams: int, temperature: float, *, constrained: bool, seed: int) -> float:
        """Tokens per second of all streams together."""
        times: list[tuple[float, int]] = []
        await asyncio.gather(
            *(self._stream(n, temperature, seed, times, constrained=constrained) for n in range(streams))
        )
        times.sort()
        first, last = times[0][0], times[-1][0]
        return (sum(count for _, count in times) - streams) / (last - first)

    async def _stream(
        self, n: int, temperature: float, seed: int, times: list[tuple[float, int]], *, constrained: bool
    ) -> None:
        self._number += 1
        tokens, root = pack_tokens(self._prompts[n]), root_key(self._engine.info.namespace)
        sampling = SamplingParams(
            self._arguments.tokens, seed=seed + n, temperature=temperature, grammar=self._grammar if constrained else ""
        )
        keys = join_keys(extend_keys(root, tokens, self._engine.info.block_tokens))
        request = Request(RequestId(self._number), tokens, sampling, root, keys)
        count = 0
        async for output in await self._engine.submit(request):
            if output.error is not None:
                raise SystemExit(output.error.message)
            times.append((time.perf_counter(), len(output.token_ids)))
            count += len(output.token_ids)
        if count != self._arguments.tokens:
            raise SystemExit(f"a stream gave {count} tokens, expected {self._arguments.tokens}")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--cache-dir", default=str(Path.home() / ".cache" / "samovar"))
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.7])
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--schema", choices=SCHEMAS, default="plain")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    checkpoint = locate(arguments.model, Path(arguments.cache_dir))
    tokenizer = load_text(checkpoint.path).tokenizer
    prompts = [tokenizer.encode(PROMPT.format(n)) for n in range(max(arguments.streams))]
    engine = await EngineClient.start(
        EngineProcessConfig(model=str(checkpoint.path), cache_dir=arguments.cache_dir, kv_cache_memory_bytes=512 << 20)
    )
    figures = []
    try:
        bench = Bench(engine, prompts, arguments)
        for constrained in (False, True):
            await bench.rate(max(arguments.streams), 0.7, constrained=constrained, seed=0)
        for streams in arguments.streams:
            for temperature in arguments.temperatures:
                rates: dict[bool, list[float]] = {False: [], True: []}
                for repeat in range(arguments.repeats):
                    for constrained in (False, True) if repeat % 2 == 0 else (True, False):
                        rate = await bench.rate(streams, temperature, constrained=constrained, seed=100 * repeat)
                        rates[constrained].append(rate)
                free, bound = median(rates[False]), median(rates[True])
                pairs = median(b / f for b, f in zip(rates[True], rates[False], strict=True))
                figures.append(
                    {
                        "streams": streams,
                        "temperature": temperature,
                        "free_tokens_per_s": round(free, 1),
                        "constrained_tokens_per_s": round(bound, 1),
                        "median_ratio_of_pairs": round(pairs, 3),
                        "free": [round(rate, 1) for rate in rates[False]],
                        "constrained": [round(rate, 1) for rate in rates[True]],
                    }
                )
                print(
                    f"{streams} streams, temperature {temperature}: free {free:.1f} tokens/s, constrained {bound:.1f}, "
                    f"{100 * (1 - bound / free):+.1f} % lost (pairs: {100 * (1 - pairs):+.1f} %)",
                    flush=True,
                )
    finally:
        await engine.close()
    print(json.dumps({"settings": engine.info.settings, "arguments": vars(arguments), "figures": figures}))


if __name__ == "__main__":
    asyncio.run(main())
