"""The step size follows from a rate; the rate is measured on the model that will run."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("torch")
from tests.runner.conftest import Tiny

from samovar.models.batch import ForwardBatch, KVCache
from samovar.models.checkpoint import open_folder
from samovar.models.load import load_model, new_cache
from samovar.runner.profile import measure_prefill_rate, probe_blocks

pytestmark = pytest.mark.torch


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
