"""The same logits however a prompt is cut, wherever its blocks lie and whatever else is in the batch.

Not bit for bit: torch's matrix products take another order of summation for another number of rows, and pieces of
context are merged. Logits here are of size 10 and pass three layers, so 1e-4 leaves float32 a factor of ten; a wrong
position or slot moves them by units.
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

pytest.importorskip("torch")
from tests.models.oracle import batch_of, nan_cache, run, save_tiny, some_ids
import torch

from samovar.models.llama import LlamaModel
from samovar.models.load import load_model
from samovar.models.locate import locate

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LlamaModel:
    folder: Path = tmp_path_factory.mktemp("tiny")
    save_tiny(folder)
    return load_model(locate(str(folder), folder), "float32")


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_whole_or_in_chunks(model: LlamaModel, chunk: int) -> None:
    ids = some_ids(300)
    assert (run(model, ids, chunk) - run(model, ids)).abs().max() <= TOLERANCE


@settings(max_examples=25, deadline=None)
@given(chunk=st.integers(1, 80), block_tokens=st.sampled_from([1, 4, 16, 200]), scattered=st.booleans())
def test_any_chunk_any_block_any_table(model: LlamaModel, chunk: int, block_tokens: int, scattered: bool) -> None:
    ids = some_ids(90)
    got = run(model, ids, chunk, block_tokens, scattered)
    assert (got - run(model, ids)).abs().max() <= TOLERANCE


@settings(max_examples=20, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), min_size=2, max_size=6), seed=st.integers(0, 99)
)
def test_in_a_batch_or_alone(model: LlamaModel, rows: list[tuple[int, int]], seed: int) -> None:
    """Rows (context before the step, tokens in it): their contexts are computed first, then one step does all."""
    torch.manual_seed(seed)
    block_tokens = 4
    needed = [-(-(context + chunk) // block_tokens) for context, chunk in rows]
    order = torch.randperm(sum(needed)).tolist()
    cache = nan_cache(model, sum(needed), block_tokens)
    chunks, wanted = [], []
    for index, (context, chunk) in enumerate(rows):
        table = [order.pop() for _ in range(needed[index])]
        ids = some_ids(context + chunk, seed=index)
        wanted.append(run(model, ids)[context:])
        if context:
            model.forward(batch_of([(ids[:context], 0, table)], block_tokens), cache)
        chunks.append((ids[context:], context, table))
    got = model.forward(batch_of(chunks, block_tokens), cache)
    assert (got - torch.cat(wanted)).abs().max() <= TOLERANCE


def test_a_shared_prefix_is_read_by_both(model: LlamaModel) -> None:
    prefix, one, two = some_ids(32), some_ids(9, seed=2), some_ids(5, seed=3)
    cache = nan_cache(model, 8, 16)
    model.forward(batch_of([(prefix, 0, [5, 1])], 16), cache)
    got = model.forward(batch_of([(one, 32, [5, 1, 7]), (two, 32, [5, 1, 0])], 16), cache)
    wanted = [run(model, torch.cat((prefix, own)))[32:] for own in (one, two)]
    assert (got - torch.cat(wanted)).abs().max() <= TOLERANCE


def test_only_the_rows_asked_for(model: LlamaModel) -> None:
    batch, ids = batch_of([(some_ids(20), 0, [0, 1])], 16), some_ids(20)
    every = model.forward(batch, nan_cache(model, 2, 16))
    wanted = type(batch)(ids, batch.positions, batch.slots, batch.rows, torch.tensor([19, 3]))
    some = model.forward(wanted, nan_cache(model, 2, 16))
    assert some.shape == (2, model.spec.vocab_size)
    assert (some - every[[19, 3]]).abs().max() <= TOLERANCE
    none = type(batch)(ids, batch.positions, batch.slots, batch.rows, torch.tensor([], dtype=torch.int64))
    assert model.forward(none, nan_cache(model, 2, 16)).shape == (0, model.spec.vocab_size)
