"""What a checkpoint's authors recommend for sampling, from generation_config.json: the file vLLM reads, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from samovar.base.errors import CheckpointError
from samovar.base.shown import shown
from samovar.text.hf_tokenizer import read_json

GENERATION_CONFIG = "generation_config.json"


class SamplingRecommendation(TypedDict, total=False):
    """In the terms of `core.sampling.SamplingParams`; only what the file settles."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float


def sampling_defaults(path: Path) -> SamplingRecommendation:
    """{} for a GGUF file and for a folder without the file. `do_sample` false means greedy, so what shapes a draw is
    left out. Raises CheckpointError, naming file and field, for a value that no request could have."""
    if not path.is_dir():
        return {}
    file = path / GENERATION_CONFIG
    declared = {name: value for name, value in read_json(file).items() if value is not None}

    def number(name: str, fits: Callable[[float], bool], limit: str) -> float:
        value = declared[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not fits(value):
            raise CheckpointError(f"{file}: field {name} is {shown(value)}; it must be a number {limit}")
        return float(value)

    found: SamplingRecommendation = {}
    if "repetition_penalty" in declared:
        found["repetition_penalty"] = number("repetition_penalty", lambda x: 0.01 <= x <= 100, "from 0.01 to 100")
    if not isinstance(declared.get("do_sample", True), bool):
        raise CheckpointError(f"{file}: field do_sample is {shown(declared['do_sample'])}; it must be true or false")
    if declared.get("do_sample") is False:
        return {**found, "temperature": 0.0}
    if "temperature" in declared:
        found["temperature"] = number("temperature", lambda x: 0 <= x <= 2, "from 0 to 2")
    if "top_p" in declared:
        found["top_p"] = number("top_p", lambda x: 0 < x <= 1, "above 0 and at most 1")
    if "min_p" in declared:
        found["min_p"] = number("min_p", lambda x: 0 <= x <= 1, "from 0 to 1")
    if "top_k" in declared:
        # Some files say 50.0; -1 and 0 both mean no limit.
        top_k = number("top_k", lambda x: -1 <= x < 1 << 31 and x == int(x), "without a fraction, -1 or more")
        found["top_k"] = max(0, int(top_k))
    return found
