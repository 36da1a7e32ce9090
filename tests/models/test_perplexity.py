"""What rounding costs: the perplexity of SmolLM2 on native kernels beside that of the same file, dequantised, in
float32 on PyTorch.

The text is fixed (`perplexity_text.txt`: prose, questions, reports, code). It is read as windows of 512 tokens, each a
request of its own, half of which the next one reads again: two looks at a token from different contexts. That halves
what chance adds to the difference, since rounding moves a token's cost by 0.08 either way (the standard error is then
about 0.1%)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
from tests.kernels.packed import native, native_levels
from tests.models.oracle import run
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from samovar.models.checkpoint import Checkpoint
from samovar.models.load import Model, load_model, load_packed_model
from samovar.models.locate import locate
from samovar.spec.dtype import Quantization
from samovar.text.checkpoint import load_text

pytestmark = [pytest.mark.torch, pytest.mark.model, pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

WINDOW = 512
STRIDE = WINDOW // 2
CHUNK = 256
"""Tokens of a step."""
LIMITS: dict[Quantization, float] = {"auto": 0.005, "none": 0.002, "int8": 0.01}
"""Share by which the perplexity may differ from float32's. Measured, over all instruction sets: 0.2% to 0.35%, 0.01% to
0.04%, and 0.55% to 0.8%: weights rounded to 8 bits once more come on top of inputs in 8 bits."""
SHORT = 256
"""Tokens of the text that every other instruction set reads."""
SHORT_LIMIT = 0.02
"""On so few tokens: four times what chance adds."""


@pytest.fixture(scope="module")
def checkpoint(smollm2_gguf: Path) -> Checkpoint:
    return locate(str(smollm2_gguf), smollm2_gguf.parent)


@pytest.fixture(scope="module")
def windows(smollm2_gguf: Path) -> list[Tensor]:
    text = (Path(__file__).parent / "perplexity_text.txt").read_text(encoding="utf-8")
    ids = torch.tensor(load_text(smollm2_gguf).tokenizer.encode(text))
    assert len(ids) > 2000
    return [ids[at : at + WINDOW] for at in range(0, len(ids) - WINDOW + 1, STRIDE)]


@pytest.fixture(scope="module")
def exact(checkpoint: Checkpoint, windows: list[Tensor]) -> list[Tensor]:
    """What float32 gives, token by token."""
    return token_costs(load_model(checkpoint, "float32"), windows)


@torch.inference_mode()
def token_costs(model: Model, windows: list[Tensor]) -> list[Tensor]:
    """Per window the negative log likelihood of each token but the first."""
    return [cross_entropy(run(model, ids[:-1], CHUNK), ids[1:], reduction="none") for ids in windows]


def perplexity(costs: list[Tensor]) -> float:
    return torch.cat(costs).double().mean().exp().item()


def load_native(checkpoint: Checkpoint, isa: str, quantization: Quantization) -> Model:
    return load_packed_model(checkpoint, native(isa), quantization, WINDOW)


@pytest.mark.parametrize("isa", native_levels()[:1])
@pytest.mark.parametrize("quantization", LIMITS)
def test_perplexity_is_that_of_float32(
    checkpoint: Checkpoint, windows: list[Tensor], exact: list[Tensor], isa: str, quantization: Quantization
) -> None:
    ours, wanted = perplexity(token_costs(load_native(checkpoint, isa, quantization), windows)), perplexity(exact)
    print(
        f"\n{isa}, quantization {quantization}: perplexity {ours:.4f}, float32 {wanted:.4f}, {ours / wanted - 1:+.3%}"
        f" on {sum(map(len, exact))} tokens"
    )
    assert abs(ours / wanted - 1) < LIMITS[quantization]


@pytest.mark.parametrize("isa", native_levels()[1:])
def test_perplexity_on_every_other_instruction_set(
    checkpoint: Checkpoint, windows: list[Tensor], exact: list[Tensor], isa: str
) -> None:
    short = windows[0][:SHORT]
    ours, wanted = (
        perplexity(token_costs(load_native(checkpoint, isa, "auto"), [short])),
        perplexity([exact[0][: SHORT - 1]]),
    )
    print(f"\n{isa}: perplexity {ours:.4f}, float32 {wanted:.4f}, {ours / wanted - 1:+.3%} on {SHORT - 1} tokens")
    assert abs(ours / wanted - 1) < SHORT_LIMIT
