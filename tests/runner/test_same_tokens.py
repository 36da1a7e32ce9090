"""SmolLM2: the same tokens however they come about. Greedy and seeded sampling alike, exact, not to a tolerance.

With PyTorch in float32 paths differ in the order of sums (about 1e-5 in the logits), and none of these prompts has two
candidates that near to each other on its way. The native kernels give equal bits by construction, in 4 bits as well.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch

from samovar.base.ids import RequestId
from samovar.base.keys import pack_tokens, root_key
from samovar.core.config import EngineConfig
from samovar.core.engine import Engine
from samovar.core.request import Request
from samovar.core.sampling import SamplingParams
from samovar.kernels.cpu.native_library import native_library
from samovar.models.locate import locate
from samovar.policy.lru import LRU
from samovar.runner.compute import Compute
from samovar.runner.engine_model import load_engine_model
from samovar.runner.local import LocalRunner
from samovar.text.checkpoint import load_text

pytestmark = [pytest.mark.torch, pytest.mark.model, pytest.mark.slow]

NUM_TOKENS = 24
TEXTS = [
    "Write a short story about a lighthouse keeper and a storm.",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "The three primary colours are red, yellow and blue. When you mix",
    "List the planets of the solar system in order from the sun:",
]


class Lab:
    """One loaded model; every run gets a fresh core and a fresh pool."""

    def __init__(self, path: Path, compute: Compute) -> None:
        torch.set_num_threads(1)
        checkpoint = locate(str(path), path.parent)
        self.loaded = load_engine_model(checkpoint, compute, 8192)
        tokenizer = load_text(path).tokenizer
        system = tokenizer.encode("You are a helpful assistant. Answer in full sentences, and take your time. " * 4)
        self.prompts = [system + tokenizer.encode(text) for text in TEXTS]
        self.preemptions = 0

    def requests(self, copies: int = 1) -> list[Request]:
        """Per prompt a greedy request and a sampled one; ids say which."""
        made = []
        for number in range(len(self.prompts) * 2 * copies):
            prompt = self.prompts[number % len(self.prompts)]
            greedy = number // len(self.prompts) % 2 == 0
            sampling = SamplingParams(NUM_TOKENS, temperature=0.0 if greedy else 0.8, top_p=0.95, seed=number % 8 + 7)
            made.append(Request(RequestId(number), pack_tokens(prompt), sampling, root_key(b"lab")))
        return made

    def run(self, requests: list[Request], *, at_once: bool = True, **config: object) -> list[list[int]]:
        settings: dict[str, object] = {"num_blocks": 256, "max_model_len": 512, "max_num_batched_tokens": 512, **config}
        engine = Engine(EngineConfig(**settings), LRU())  # type: ignore[arg-type]
        cache = self.loaded.new_cache(engine.config.num_blocks, 16)
        runner = LocalRunner(self.loaded.model, cache, best=self.loaded.best)
        tokens: dict[int, list[int]] = {request.id: [] for request in requests}
        waiting = list(requests)
        flight: list = []
        now = 0.0
        try:
            while waiting or engine.has_work:
                while waiting and (at_once or not engine.has_work):
                    assert engine.submit(waiting.pop(0), now).error is None
                while (plan := engine.plan(now)) is not None:
                    flight.append((plan.step, runner.submit(plan)))
                now += 1.0
                if flight:
                    step, ticket = flight.pop(0)
                    for output in engine.apply(step, ticket.result(), now):
                        assert output.error is None
                        tokens[output.request_id] += output.token_ids
            engine.check()
        finally:
            runner.close()
        self.preemptions = engine.stats().preemptions
        return [tokens[request.id] for request in requests]


@pytest.fixture(scope="module", params=["torch", "native"])
def lab(smollm2_gguf: Path, request: pytest.FixtureRequest) -> Lab:
    if request.param == "torch":
        return Lab(smollm2_gguf, Compute("float32", "none"))
    library = native_library()
    if library is None:
        pytest.skip("this installation has no native kernels")
    return Lab(smollm2_gguf, Compute("bfloat16", "auto", library.choose("auto"), 2))


@pytest.fixture(scope="module")
def alone(lab: Lab) -> list[list[int]]:
    """The reference: one at a time, whole prompts, no cache, nothing overlapped."""
    return lab.run(lab.requests(), at_once=False, enable_prefix_caching=False, depth=1)


def test_the_reference_says_something(alone: list[list[int]]) -> None:
    assert all(len(tokens) == NUM_TOKENS for tokens in alone)
    assert len({tuple(tokens) for tokens in alone}) == 8, "greedy and sampled runs differ"


def test_with_the_prefix_cache(lab: Lab, alone: list[list[int]]) -> None:
    assert lab.run(lab.requests(), at_once=False) == alone


def test_in_a_batch_of_16(lab: Lab, alone: list[list[int]]) -> None:
    assert lab.run(lab.requests(copies=2)) == alone * 2


@pytest.mark.parametrize("chunk", [7, 64])
def test_with_the_prompt_in_chunks(lab: Lab, alone: list[list[int]], chunk: int) -> None:
    assert lab.run(lab.requests(), max_num_batched_tokens=chunk, enable_prefix_caching=False) == alone


def test_preempted(lab: Lab, alone: list[list[int]]) -> None:
    assert lab.run(lab.requests(), num_blocks=17, max_model_len=256) == alone
    assert lab.preemptions >= 2
