"""SmolLM2-135M-Instruct from its GGUF file against transformers' reading of the same file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")
from tests.kernels.packed import native, native_levels
from tests.models.oracle import batch_of, nan_cache, oracle_logits, run, some_ids
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
import transformers
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from samovar.models.llama import LlamaModel
from samovar.models.load import load_model, load_packed_model
from samovar.models.locate import locate

pytestmark = [pytest.mark.torch, pytest.mark.model, pytest.mark.usefixtures("one_thread")]

TEXTS = [
    "Write a Python function that returns the n-th Fibonacci number.",
    "What is the capital of France?",
    "Explain how a hash table works, in three sentences.",
    "def quicksort(items):",
    "List five uses of a paper clip.",
    "Translate to French: The weather is nice today.",
    "Why is the sky blue?",
    "Write a haiku about the sea.",
    "What does the command `git rebase` do?",
    "Give me a recipe for pancakes.",
    "class Stack:\n    def __init__(self):",
    "Summarise the plot of Romeo and Juliet.",
    "What is 17 times 23?",
    "Name three programming languages and what each is good at.",
    "How do I read a file line by line in Python?",
    "Once upon a time, in a village by the mountains,",
    "SELECT name, COUNT(*) FROM users",
    "What is the difference between TCP and UDP?",
    "Fix this code: for i in range(10) print(i)",
    "Tell me about the history of tea.",
]
NEW_TOKENS = 64
SMALL_MARGIN = 1e-3
"""Where the two best logits are this close, either is a right answer."""


@pytest.fixture(scope="module")
def oracle(smollm2_gguf: Path) -> transformers.PreTrainedModel:
    """As `from_pretrained(gguf_file=...)`, which asks for accelerate as well."""
    config = transformers.AutoConfig.from_pretrained(smollm2_gguf.parent, gguf_file=smollm2_gguf.name)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    tensors = load_gguf_checkpoint(str(smollm2_gguf), return_tensors=True, model_to_load=model)["tensors"]
    left_out = model.load_state_dict(tensors, strict=False)
    assert (left_out.missing_keys, left_out.unexpected_keys) == (["lm_head.weight"], [])
    model.tie_weights()
    model.generation_config.eos_token_id = None  # goes on after an answer's end, as here
    return model.eval()


@pytest.fixture(scope="module")
def model(smollm2_gguf: Path) -> LlamaModel:
    return load_model(locate(str(smollm2_gguf), smollm2_gguf.parent), "float32")


@pytest.fixture(scope="module")
def prompts(smollm2_gguf: Path) -> list[Tensor]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2_gguf.parent, gguf_file=smollm2_gguf.name)
    chats = [[{"role": "user", "content": text}] for text in TEXTS]
    return [
        torch.tensor(tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False))
        for chat in chats
    ]


@pytest.fixture(scope="module")
def greedy(model: LlamaModel, prompts: list[Tensor]) -> tuple[Tensor, Tensor]:
    return continue_greedily(model, prompts)


@torch.inference_mode()
def continue_greedily(model: LlamaModel, prompts: list[Tensor], block_tokens: int = 16) -> tuple[Tensor, Tensor]:
    """All prompts in one batch, a pool with interleaved tables. Returns tokens [n, NEW_TOKENS] and the margin between
    the two best logits at each."""
    needed = [-(-(len(ids) + NEW_TOKENS) // block_tokens) for ids in prompts]
    order = torch.randperm(sum(needed)).tolist()
    tables = [[order.pop() for _ in range(count)] for count in needed]
    cache = nan_cache(model, sum(needed), block_tokens)
    lengths = torch.tensor([len(ids) for ids in prompts])
    logits = model.forward(batch_of([(ids, 0, t) for ids, t in zip(prompts, tables, strict=True)], block_tokens), cache)
    best = logits[lengths.cumsum(0) - 1].topk(2)
    tokens, margins = [best.indices[:, 0]], [best.values[:, 0] - best.values[:, 1]]
    for step in range(NEW_TOKENS - 1):
        rows = [
            (token[None], int(length) + step, table)
            for token, length, table in zip(tokens[-1], lengths, tables, strict=True)
        ]
        best = model.forward(batch_of(rows, block_tokens), cache).topk(2)
        tokens.append(best.indices[:, 0])
        margins.append(best.values[:, 0] - best.values[:, 1])
    return torch.stack(tokens, 1), torch.stack(margins, 1)


def test_whole_or_in_chunks(model: LlamaModel) -> None:
    ids = some_ids(150, model.spec.vocab_size)
    whole = run(model, ids)
    assert whole.std() > 1
    # 30 layers; see test_chunks.py for the reason
    assert (run(model, ids, chunk=37, scattered=True) - whole).abs().max() <= 1e-3


@pytest.mark.slow
def test_logits_equal_those_of_transformers(
    model: LlamaModel, oracle: transformers.PreTrainedModel, prompts: list[Tensor]
) -> None:
    ids = torch.cat(prompts)[:400]
    wanted = oracle_logits(oracle, ids)
    assert (run(model, ids) - wanted).abs().max() <= 5e-4
    assert (run(model, ids, chunk=99, scattered=True) - wanted).abs().max() <= 5e-4


@pytest.mark.slow
def test_greedy_text_equals_that_of_transformers(
    oracle: transformers.PreTrainedModel, prompts: list[Tensor], greedy: tuple[Tensor, Tensor]
) -> None:
    """One look of the oracle at our text, not a generation of its own: greedy texts are equal exactly when each token
    is the best one after those before it."""
    for ids, own, margin in zip(prompts, *greedy, strict=True):
        wanted = oracle_logits(oracle, torch.cat((ids, own[:-1])))[len(ids) - 1 :].argmax(-1)
        assert (margin[own != wanted] < SMALL_MARGIN).all()


@pytest.mark.slow
def test_bfloat16_chooses_mostly_the_same_tokens(
    smollm2_gguf: Path,
    prompts: list[Tensor],
    greedy: tuple[Tensor, Tensor],
    record_property: Callable[[str, object], None],
) -> None:
    """On the text that float32 chose, so that one early difference does not count 64 times."""
    rounded = load_model(locate(str(smollm2_gguf), smollm2_gguf.parent), "bfloat16")
    same = []
    for ids, own in zip(prompts, greedy[0], strict=True):
        logits = run(rounded, torch.cat((ids, own[:-1])))[len(ids) - 1 :]
        same.append(logits.argmax(-1) == own)
    agreement = torch.stack(same).float().mean().item()
    record_property("agreement", agreement)
    print(f"bfloat16 agrees on {agreement:.4f} of {greedy[0].numel()} tokens")
    assert agreement > 0.93


@pytest.mark.slow
@pytest.mark.parametrize("isa", native_levels()[:1])
def test_native_kernels_in_4_bits_choose_mostly_the_same_tokens(
    smollm2_gguf: Path,
    prompts: list[Tensor],
    greedy: tuple[Tensor, Tensor],
    model: LlamaModel,
    isa: str,
    record_property: Callable[[str, object], None],
) -> None:
    """The file's own quantisation with inputs in 8 bits and KV in bfloat16, on the text that float32 chose: nearly
    the same tokens, and a likelihood within 1%."""
    checkpoint = locate(str(smollm2_gguf), smollm2_gguf.parent)
    packed = load_packed_model(checkpoint, native(isa), "auto", 8192)
    same, costs = [], []
    for ids, own in zip(prompts, greedy[0], strict=True):
        text = torch.cat((ids, own))
        logits, exact = run(packed, text[:-1]), run(model, text[:-1])
        same.append(logits[len(ids) - 1 :].argmax(-1) == own)
        costs.append([cross_entropy(each, text[1:], reduction="sum") for each in (logits, exact)])
    agreement = torch.stack(same).float().mean().item()
    ours, wanted = torch.tensor(costs).sum(0).tolist()
    record_property("agreement", agreement)
    print(f"agrees on {agreement:.4f} of {greedy[0].numel()} tokens; costs {ours / wanted - 1:+.4f}")
    assert agreement > 0.93 and abs(ours / wanted - 1) < 0.01
