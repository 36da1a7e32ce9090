"""The step size follows from a rate; the rate is measured on the model that will run."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
import pytest

pytest.importorskip("torch")
from tests.runner.conftest import Tiny

from samovar.models.batch import ForwardBatch, KVCache
from samovar.models.checkpoint import open_folder
from samovar.models.load import load_model, new_cache
from samovar.runner.profile import LARGEST_STEP_TOKENS, measure_prefill_rate, probe_blocks, step_tokens

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("rate", "block", "expected"),
    [(1000, 16, 192), (1001, 1, 200), (50, 16, 64), (0, 48, 96), (1e9, 16, 8192), (1e9, 48, 8160), (10, 256, 256)],
)
def test_known_sizes(rate: float, block: int, expected: int) -> None:
    assert step_tokens(rate, block) == expected


def test_a_shorter_target() -> None:
    assert step_tokens(4000, 16, 0.05) == 192


@given(st.floats(0, 1e7), st.integers(1, 512))
def test_whole_blocks_within_the_target(rate: float, block: int) -> None:
    size = step_tokens(rate, block)
    assert size % block == 0 and 64 <= size <= max(LARGEST_STEP_TOKENS, block)
    assert size <= rate * 0.2 or size < 64 + block


def test_the_rate_is_of_the_model(tiny: Tiny) -> None:
    """Counts the forwards: four per probe, on all of the probe's tokens, inside the scratch cache."""
    model = load_model(open_folder(tiny.folder), "float32")
    sizes: Counter[int] = Counter()
    whole = model.forward

    class Counting:
        def forward(self, batch: ForwardBatch, cache: KVCache) -> object:
            sizes[len(batch.token_ids)] += 1
            assert int(batch.slots.max()) < 16 * probe_blocks(16)
            return whole(batch, cache)

    scratch = new_cache(model.spec, probe_blocks(16), 16, "float32")
    assert measure_prefill_rate(Counting(), scratch) > 0  # type: ignore[arg-type]
    assert sizes[64] == 4 and sizes[256] in (0, 4)
