"""The packed path as a whole: tiny models on the reference ops and on every native instruction set, against
transformers; and the same bits however a prompt is cut and whatever else is in the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gguf.constants import GGMLQuantizationType as Kind
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

pytest.importorskip("torch")
from tests.kernels.packed import native, native_levels
from tests.models.gguf_files import save_gguf
from tests.models.oracle import batch_of, nan_cache, oracle_logits, run, save_tiny, some_ids
import torch

from samovar.kernels.packed_ops import PackedOps
from samovar.kernels.table import PACKED_REFERENCE
from samovar.models.load import load_packed_model
from samovar.models.locate import locate
from samovar.models.packed_limits import packed_misfit
from samovar.models.packed_llama import PackedLlama
from samovar.spec.dtype import Quantization

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 600,
}


@pytest.fixture(scope="module", params=["reference", *native_levels()])
def ops(request: pytest.FixtureRequest) -> PackedOps:
    return PACKED_REFERENCE if request.param == "reference" else native(request.param)


def load(path: Path, ops: PackedOps, quantization: Quantization = "auto") -> PackedLlama:
    checkpoint = locate(str(path), path.parent)
    assert packed_misfit(checkpoint.spec, 16) is None
    return load_packed_model(checkpoint, ops, quantization, checkpoint.spec.max_position_embeddings)


def distance(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Root mean square of the difference, as a share of the logits' spread: 1.4 for logits of something else."""
    return ((got - wanted).square().mean().sqrt() / wanted.std()).item()


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {}),
        ("llama", {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
        ("qwen2", {"num_key_value_heads": 4}),
        ("qwen3", {}),
    ],
)
def test_families_in_bfloat16(ops: PackedOps, family: str, changes: dict[str, object], tmp_path: Path) -> None:
    """Against float32: what is left is the rounding to 8 bits at every matrix's input."""
    oracle = save_tiny(tmp_path, family, **(SIZES | changes))
    ids = some_ids(300)
    assert distance(run(load(tmp_path, ops), ids), oracle_logits(oracle, ids)) < 0.1


@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16, Kind.F32, Kind.Q4_0, Kind.Q4_1, Kind.Q8_0, Kind.Q5_0])
@pytest.mark.parametrize("quantization", ["auto", "none", "int8"])
def test_gguf_types(ops: PackedOps, kind: Kind, quantization: Quantization, tmp_path: Path) -> None:
    """The oracle has what the type keeps of the weights; q and k lie permuted in the file. Q5_0 has no format here."""
    oracle = save_tiny(tmp_path / "hf", **SIZES)
    path = save_gguf(tmp_path / "x.gguf", oracle, kind)
    model = load(path, ops, quantization)
    own = {"Q4_0": "q4_0", "Q4_1": "q4_1", "Q8_0": "q8", "Q5_0": "q8"}.get(kind.name, "bf16")
    wanted = {"auto": own, "none": "bf16", "int8": "q8"}[quantization]
    assert {matrix.format for matrix in model.weights.matrices()} == {wanted}
    ids = some_ids(60)
    assert distance(run(model, ids), oracle_logits(oracle, ids)) < 0.1


@pytest.mark.parametrize("kind", [None, Kind.Q4_1])
def test_the_same_bits_in_chunks(ops: PackedOps, kind: Kind | None, tmp_path: Path) -> None:
    if ops is PACKED_REFERENCE:
        pytest.skip("numpy's matrix products promise no order of summation")
    oracle = save_tiny(tmp_path / "hf", **SIZES)
    model = load(save_gguf(tmp_path / "x.gguf", oracle, kind) if kind else tmp_path / "hf", ops)
    ids = some_ids(400)
    whole = run(model, ids)
    for chunk in (1, 7, 64, 257):
        assert torch.equal(run(model, ids, chunk, 32, scattered=True), whole), chunk


@settings(max_examples=15, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 20)), min_size=2, max_size=6), seed=st.integers(0, 99)
)
def test_the_same_bits_in_a_batch(
    ops: PackedOps, tiny_model: Callable[[PackedOps], PackedLlama], rows: list[tuple[int, int]], seed: int
) -> None:
    """Rows (context before the step, tokens in it): their contexts are computed first, then one step does all."""
    model = tiny_model(ops)
    torch.manual_seed(seed)
    needed = [-(-(context + chunk) // 16) for context, chunk in rows]
    order = torch.randperm(sum(needed)).tolist()
    cache = nan_cache(model, sum(needed), 16)
    chunks, wanted = [], []
    for index, (context, chunk) in enumerate(rows):
        table = [order.pop() for _ in range(needed[index])]
        ids = some_ids(context + chunk, seed=index)
        wanted.append(run(model, ids)[context:])
        if context:
            model.forward(batch_of([(ids[:context], 0, table)], 16), cache)
        chunks.append((ids[context:], context, table))
    got = model.forward(batch_of(chunks, 16), cache)
    if ops is PACKED_REFERENCE:
        assert distance(got, torch.cat(wanted)) < 0.05
    else:
        assert torch.equal(got, torch.cat(wanted))


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[PackedOps], PackedLlama]:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder, **SIZES)
    loaded: dict[str, PackedLlama] = {}

    def model(ops: PackedOps) -> PackedLlama:
        return loaded.setdefault(ops.name, load(folder, ops))

    return model


def test_only_the_rows_asked_for(ops: PackedOps, tiny_model: Callable[[PackedOps], PackedLlama]) -> None:
    """The last layer leaves the others out, and still writes their K and V."""
    model = tiny_model(ops)
    ids = some_ids(20)
    batch, cache, other = batch_of([(ids, 0, [0, 1])], 16), nan_cache(model, 2, 16), nan_cache(model, 2, 16)
    every = model.forward(batch, cache)
    some = model.forward(replace(batch, logit_rows=torch.tensor([19, 3])), other)
    none = model.forward(replace(batch, logit_rows=torch.tensor([], dtype=torch.int64)), nan_cache(model, 2, 16))
    assert some.shape == (2, model.spec.vocab_size) and none.shape == (0, model.spec.vocab_size)
    assert distance(some, every[[19, 3]]) < (1e-3 if ops is PACKED_REFERENCE else 1e-30)
    pairs = zip(cache.values, other.values, strict=True)
    assert all(torch.equal(a.view(torch.int16), b.view(torch.int16)) for a, b in pairs)


def test_argmax_takes_the_first_of_equals_and_sees_what_is_not_finite(
    ops: PackedOps, tiny_model: Callable[[PackedOps], PackedLlama]
) -> None:
    logits = torch.randn(5, 120)
    logits[0, [7, 90]] = 9.0
    logits[1, 119] = 9.0
    logits[2, 3] = torch.nan
    logits[3, 3] = torch.inf
    logits[4, 0] = -torch.inf
    tokens, finite = tiny_model(ops).argmax(logits)
    assert tokens[:2] == [7, 119] and finite == [True, True, False, False, False]


def test_no_rope_position_is_left_out(ops: PackedOps, tiny_model: Callable[[PackedOps], PackedLlama]) -> None:
    model = tiny_model(ops)
    assert model.cos.shape == (600, 16) and np.allclose(model.cos**2 + model.sin**2, 1, atol=1e-5)
