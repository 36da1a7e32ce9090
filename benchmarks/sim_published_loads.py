"""Loads with the statistics that were published with a figure, made anew from a seed each time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
import random

import numpy as np

from samovar.workload.replay_fit import fit
from samovar.workload.replay_script import Script, script_of
from samovar.workload.session import SessionTree, Stream, Turn, frozen_ids
from samovar.workload.synth import synthesise
from samovar.workload.synth_config import SynthConfig

_NEVER_S = 1e9


def agents(config: SynthConfig, max_tokens: int = 1_048_576) -> tuple[Script, ...]:
    """Each agent ends before the first call that is longer than `max_tokens`."""
    return tuple(script_of(tree) for tree in fit(synthesise(config), max_tokens, "cut").trees)


def input_tokens(scripts: Sequence[Script]) -> np.ndarray:
    """Of every call."""
    return np.array([call.recorded.input_tokens for script in scripts for call in script.calls])


def poisson(requests: int, per_s: float, prompt_tokens: int, output_tokens: int, seed: int) -> tuple[Script, ...]:
    """Requests that do not wait for each other, with prompts that share nothing. One script, for one lane."""
    rng = random.Random(seed)
    block = 64
    size = prompt_tokens // block
    starts = accumulate(rng.expovariate(per_s) for _ in range(requests))
    streams = []
    for number, start_s in enumerate(starts):
        ids = frozen_ids(np.arange(number * size + 1, (number + 1) * size + 1, dtype=np.int64))
        # It counts as running to the end of the recording, so nothing waits for it.
        turn = Turn(start_s, _NEVER_S, prompt_tokens, output_tokens, ids)
        streams.append(Stream("main" if number == 0 else f"r{number}", "main" if number == 0 else "aux", (turn,)))
    return (script_of(SessionTree("poisson", block, tuple(streams), namespace="poisson")),)


def at_once(requests: int, prompt_tokens: int, output_tokens: int) -> tuple[Script, ...]:
    """As many sessions of one call each, with prompts that share nothing; each wants a lane."""
    block = 64
    ids = frozen_ids(np.arange(1, prompt_tokens // block + 1, dtype=np.int64))
    turn = Turn(0.0, 1.0, prompt_tokens, output_tokens, ids)
    trees = [
        SessionTree(f"p{number}", block, (Stream("main", "main", (turn,)),), namespace=f"p{number}")
        for number in range(requests)
    ]
    return tuple(script_of(tree) for tree in trees)


def two_sizes(
    sessions: int, turns: int, long_share: float, long_tokens: tuple[int, int], seed: int
) -> tuple[Script, ...]:
    """Agents whose prompts keep one length, evenly between `long_tokens` or short, and renew the last tenth of it with
    every turn: nine tenths are cached. They answer with 50 to 750 tokens and never pause."""
    rng = random.Random(seed)
    scripts = []
    for number in range(sessions):
        # As evenly mixed as can be, so that few lanes have the same share of long prompts.
        is_long = int((number + 1) * long_share) > int(number * long_share)
        size = rng.randint(*long_tokens) if is_long else rng.randint(1_000, 4_000)
        scripts.append(script_of(_steady(f"s{number}", size, turns, 64, rng)))
    return tuple(scripts)


def _steady(name: str, size: int, turns: int, block: int, rng: random.Random) -> SessionTree:
    length = size // block
    kept = length * 9 // 10
    prompts = (
        np.concatenate([np.arange(kept), kept + turn * length + np.arange(length - kept)]).astype(np.int64) + 1
        for turn in range(turns)
    )
    made = [
        Turn(2.0 * turn, 2.0 * turn + 2.0, size, rng.randint(50, 750), frozen_ids(ids))
        for turn, ids in enumerate(prompts)
    ]
    return SessionTree(name, block, (Stream("main", "main", tuple(made)),), namespace=name)
