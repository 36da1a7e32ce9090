"""The loads that servers are compared under, and the figures of one run of each. Prompts are random token ids, new in
every run, so that no cache of an earlier one helps; inside a run they are the same for every server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
import math
import random
from statistics import median
import time

from benchmarks.peer_client import Answer, Endpoint, complete
import httpx

LOWEST_ID, HIGHEST_ID = 1_000, 30_000
"""Inside every common vocabulary and clear of special tokens."""
FILLER = 1_000
"""Stands in a history for a token whose id the server kept to itself."""

Prompt = list[int]
Figures = dict[str, float]


@dataclass(frozen=True)
class Streams:
    """`requests` of the same size, `lanes` at a time."""

    lanes: int
    requests: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Agents:
    """`sessions` at once; each sends its whole history and a little more, turn after turn."""

    sessions: int
    turns: int
    first_tokens: int
    added_tokens: int
    output_tokens: int


SCENARIOS: dict[str, Streams | Agents] = {
    "single512": Streams(1, 3, 512, 128),
    "deep4096": Streams(1, 2, 4096, 64),
    "conc8": Streams(8, 16, 512, 128),
    "agent": Agents(4, 12, 1500, 150, 48),
}


def prompt(rng: random.Random, tokens: int) -> Prompt:
    return [rng.randrange(LOWEST_ID, HIGHEST_ID) for _ in range(tokens)]


async def run_scenario(client: httpx.AsyncClient, endpoint: Endpoint, scenario: Streams | Agents, seed: int) -> Figures:
    rng = random.Random(seed)
    if isinstance(scenario, Agents):
        return await _agents(client, endpoint, scenario, rng)
    prompts = [prompt(rng, scenario.prompt_tokens) for _ in range(scenario.requests)]
    answers, wall_s = await in_lanes(
        scenario.lanes, [partial(complete, client, endpoint, one, scenario.output_tokens) for one in prompts]
    )
    return figures_of(answers, wall_s)


async def warm_up(client: httpx.AsyncClient, endpoint: Endpoint, seed: int) -> None:
    """A few requests of both kinds, so that nothing is compiled or allocated for the first time while it is measured.
    Raises RuntimeError when the server cannot answer them."""
    for shape in (Streams(1, 2, 512, 16), Streams(8, 8, 300, 16)):
        figures = await run_scenario(client, endpoint, shape, seed)
        if figures["errors"]:
            raise RuntimeError(f"{endpoint.url}: {figures['errors']:.0f} of {shape.requests} warm-up requests failed")
        seed += 1


async def in_lanes(lanes: int, jobs: Sequence[Callable[[], Awaitable[Answer]]]) -> tuple[list[Answer], float]:
    """All jobs, `lanes` at a time in their order, and the seconds until the last one's end."""
    waiting, answers = list(reversed(jobs)), []

    async def lane() -> None:
        while waiting:
            answers.append(await waiting.pop()())

    begin = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(lanes)))
    return answers, time.perf_counter() - begin


async def _agents(client: httpx.AsyncClient, endpoint: Endpoint, scenario: Agents, rng: random.Random) -> Figures:
    firsts = [prompt(rng, scenario.first_tokens) for _ in range(scenario.sessions)]
    added = [[prompt(rng, scenario.added_tokens) for _ in range(scenario.turns)] for _ in range(scenario.sessions)]
    first_turns: list[Answer] = []
    later_turns: list[Answer] = []

    async def session(history: Prompt, additions: list[Prompt]) -> None:
        for turn, addition in enumerate(additions):
            if turn:
                history = history + addition
            answer = await complete(client, endpoint, history, scenario.output_tokens)
            (later_turns if turn else first_turns).append(answer)
            history = continued(history, answer)

    begin = time.perf_counter()
    await asyncio.gather(*(session(*pair) for pair in zip(firsts, added, strict=True)))
    wall_s = time.perf_counter() - begin
    figures = figures_of([*first_turns, *later_turns], wall_s)
    for name, answers in (("first_turn", first_turns), ("later_turn", later_turns)):
        figures[f"{name}_ttft_ms"] = _median([1e3 * answer.first_s for answer in answers if not answer.error])
    return figures


def continued(history: Prompt, answer: Answer) -> Prompt:
    """The next turn's history has the same length whatever a server told of its answer."""
    ids = answer.token_ids[: answer.wanted]
    return history + ids + [FILLER] * (answer.wanted - len(ids))


def figures_of(answers: Sequence[Answer], wall_s: float) -> Figures:
    """Medians over requests; failed ones are counted and left out."""
    good = [answer for answer in answers if not answer.error]
    prompts, cached = sum(a.prompt_tokens for a in good), sum(a.cached_tokens for a in good)
    return {
        "requests": len(good),
        "errors": len(answers) - len(good),
        "wall_s": wall_s,
        "output_tokens_per_s": sum(answer.tokens for answer in good) / wall_s,
        "ttft_ms": _median([1e3 * answer.first_s for answer in good]),
        "stream_tokens_per_s": _median([answer.tokens_per_s for answer in good]),
        "longest_gap_ms": _median([1e3 * answer.longest_gap_s for answer in good]),
        "worst_gap_ms": max((1e3 * answer.longest_gap_s for answer in good), default=math.nan),
        "computed_prompt_tokens": prompts - cached,
    }


def _median(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return median(known) if known else math.nan
