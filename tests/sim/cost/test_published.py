"""Figures that were published, or worked out from published ones: what the model says of them.

Fitted on the whole run of T6 alone: the floor of a step with prompts and the time between steps. The rest are checks.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from samovar.sim.cost.capacity import Memory, capacity_tokens, weight_bytes
from samovar.sim.cost.layout import Layout, Mode
from samovar.sim.cost.roofline import CostModel
from samovar.sim.cost.shape import Chunk, StepShape
from samovar.sim.cost.step_cost import StepCost
from samovar.spec.catalog import load_device, load_kernels, load_model
from tests.sim.cost.published_rows import (
    B200,
    R1_DEP8,
    SYNC_S,
    T1,
    T1_MIXED,
    T6,
    T6_LEAST,
    T6_MIXED,
    T6_PROMPT,
    V4_DEP8,
)


class TestT6:
    """V4-Pro on 8 B200, DP8 EP8, 64 sessions: step log p50 31.15 ms (decoding), 160 (with prompts)."""

    def test_a_decode_step(self) -> None:
        found = V4_DEP8.step_s([T6] * 8)
        assert found.total_s - SYNC_S == pytest.approx(31.15e-3, rel=0.10)
        assert found.total_s == pytest.approx(33.2e-3, rel=0.10), "what was predicted before, from the same tables"
        assert found.limit == "bandwidth"

    def test_a_step_with_prompts(self) -> None:
        assert V4_DEP8.step_s(T6_MIXED).total_s - SYNC_S == pytest.approx(160e-3, rel=0.10)

    def test_the_least_prompts(self) -> None:
        """The shortest steps of the whole log: hardly more than the floor beside what every step takes."""
        assert V4_DEP8.step_s(T6_LEAST).total_s - SYNC_S == pytest.approx(115.9e-3, rel=0.20)
        assert V4_DEP8.step_s(T6_PROMPT).total_s - SYNC_S == pytest.approx(83.5e-3, rel=0.10)

    def test_the_fitted_time_between_steps(self) -> None:
        """2.49 tokens a step at 19.8 ms each is 49.3 ms; the log's steps (89 %, 8 %, 3 %) are 46.5 on average."""
        client_s = 2.49 * 19.8e-3
        logged_s = 0.89 * 31.15e-3 + 0.08 * 160e-3 + 0.03 * 198e-3
        assert pytest.approx(client_s - logged_s, abs=0.1e-3) == SYNC_S


class TestT1:
    """R1 in NVFP4 on 8 GB200, DP8 EP8: P50 of the clients' gaps between tokens."""

    def test_a_decode_step(self) -> None:
        """32.1 ms; predicted before, from the same tables, 30.3."""
        assert R1_DEP8.step_s(T1).total_s == pytest.approx(32.1e-3, rel=0.10)
        assert R1_DEP8.step_s(T1).total_s == pytest.approx(30.3e-3, rel=0.10)

    def test_a_step_with_prompts(self) -> None:
        """274.9 ms; the floor is T6's, which is of a later engine."""
        assert R1_DEP8.step_s(T1_MIXED).total_s == pytest.approx(274.9e-3, rel=0.20)


class TestT2:
    """Kimi K2.6 NVFP4 on 8 B200: 2.68 M tokens of KV under TP8, 21.5 M with DCP8."""

    K2 = load_model("kimi-k2.6")

    @pytest.mark.parametrize(("dcp", "tokens"), [(1, 2.68e6), (8, 21.5e6)])
    def test_capacity(self, dcp: int, tokens: float) -> None:
        assert capacity_tokens(self.K2, B200, Layout(tp=8, dcp=dcp), Memory()) == pytest.approx(tokens, rel=0.03)

    def test_weights(self) -> None:
        """73.7 GB a rank without the matrices that every rank repeats (1.6 GB)."""
        assert weight_bytes(self.K2, Layout(tp=8)) == pytest.approx(73.7e9 + 1.6e9, rel=0.01)

    @pytest.mark.parametrize(("sequences", "tp_ms", "dcp_ms"), [(1, 1.5, 3.4), (16, 7.1, 4.3), (64, 25.0, 7.4)])
    def test_attention_and_its_exchanges(self, sequences: int, tp_ms: float, dcp_ms: float) -> None:
        """At 67k tokens each, of all layers, worked out before from the same tables; all-to-all."""
        plain, dcp = attention_ms(self.K2.name, 1, sequences), attention_ms(self.K2.name, 8, sequences)
        assert plain == pytest.approx(tp_ms, rel=0.15) and dcp == pytest.approx(dcp_ms, rel=0.15)

    def test_dcp_pays_for_many_sequences_and_not_for_one(self) -> None:
        """As whole steps. Worked out before: above about 5 of 67k tokens; here above 7."""
        plain = CostModel(self.K2, B200, Layout(tp=8))
        dcp = CostModel(self.K2, B200, Layout(tp=8, dcp=8, dcp_comm="a2a"))
        gains = [
            plain.step_s([StepShape(n, n * 67_000)]).total_s / dcp.step_s([StepShape(n, n * 67_000)]).total_s
            for n in (1, 4, 10, 64)
        ]
        assert gains[0] < 0.9 and gains[1] < 1 and gains[2] > 1.03 and gains[3] > 1.5


def test_prompts_exchange_nothing_under_dcp_but_their_contexts() -> None:
    """They run over the gathered context; queries and partial outputs are exchanged of what decodes alone."""
    k2 = load_model("kimi-k2.6")
    plain, dcp = (CostModel(k2, B200, Layout(tp=8, dcp=n, dcp_comm="a2a")) for n in (1, 8))

    def more_s(*shapes: StepShape) -> float:
        return dcp.step_s(shapes).collectives_s - plain.step_s(shapes).collectives_s

    assert more_s(StepShape(chunks=(Chunk(8192),))) == 0
    beside = more_s(StepShape(16, 16 * 67_000, 1, (Chunk(8192),)))
    assert beside == pytest.approx(more_s(StepShape(16, 16 * 67_000)))
    # 34.6 MB of KV a layer, at 20 us for the first MB and 215 for every 100 beyond.
    assert more_s(StepShape(chunks=(Chunk(8192, 60_000),))) == pytest.approx(61 * 92.2e-6, rel=0.01)


def attention_ms(name: str, dcp: int, sequences: int) -> float:
    """Of the attention's kernels and, with DCP, its exchanges: what differs from a step without context, with the
    kernels' launches."""
    model = CostModel(load_model(name), B200, Layout(tp=8, dcp=dcp, dcp_comm="a2a"))
    plain = CostModel(load_model(name), B200, Layout(tp=8))
    found = model.step_s([StepShape(sequences, sequences * 67_000)])
    exchanges = found.collectives_s - plain.step_s([StepShape(sequences, 0)]).collectives_s
    kernels = load_kernels("blackwell").attention["mla", "fp8"]
    floors = 61 * (kernels.floor_s - 6e-6 + (8 if dcp == 1 else 64) * kernels.floor_per_head_s)
    rows = 61 * sequences * (8 if dcp == 1 else 64) * kernels.row_head_s
    return 1e3 * (found.attention_s - rows + exchanges + floors)


class TestDcpOnV4:
    def test_it_does_not_beat_data_parallel(self) -> None:
        """Published: DCP drew level with DEP on V4 and no more, where it clearly pays for plain MLA."""
        v4 = load_model("deepseek-v4-pro")
        dcp = CostModel(v4, B200, Layout(tp=8, dcp=8, dcp_comm="a2a"))
        for sessions in (64, 128):
            together = dcp.step_s([StepShape(sessions, sessions * 127_000)])
            each = StepShape(sessions // 8, sessions // 8 * 127_000)
            assert V4_DEP8.step_s([each] * 8).total_s < 1.1 * together.total_s


class TestOneUser:
    """(g): V4-Pro, TP8 on B200, one row: 115 to 130 us a layer, where reading takes 12."""

    FOUND = CostModel(load_model("deepseek-v4-pro"), B200, Layout(tp=8)).step_s([StepShape(1, 60_000)])

    def test_a_layer(self) -> None:
        layer_us = (self.FOUND.total_s - self.FOUND.host_s - self.FOUND.head_s) / 61 * 1e6
        assert 105 < layer_us < 140

    def test_launches_are_most_of_it(self) -> None:
        assert self.FOUND.limit == "launch"
        assert self.FOUND.bandwidth_s < 0.3 * self.FOUND.total_s


class TestMono:
    """T14: the gain is largest for one row, small by eight sessions with their drafts, and nothing beyond 64 rows."""

    @pytest.mark.parametrize("device", ["MI355X", "B200"])
    @pytest.mark.parametrize("name", ["deepseek-v4-pro", "kimi-k2.6"])
    def test_the_gain_shrinks_to_nothing(self, name: str, device: str) -> None:
        rows = [1, 2, 4, 8, 12, 16, 24, 32, 48, 56, 64, 65, 128]
        gains = [step(name, device, "graph", n).total_s / step(name, device, "mono", n).total_s for n in rows]
        assert all(a >= b for a, b in pairwise(gains)), gains
        assert gains[0] > 1.5 and 1 <= gains[rows.index(64)] < 1.06 and gains[rows.index(65)] == 1

    def test_why(self) -> None:
        assert step("deepseek-v4-pro", "B200", "graph", 1).limit == "launch"
        assert step("deepseek-v4-pro", "B200", "graph", 64).limit == "bandwidth"


def step(name: str, device: str, mode: Mode, rows: int) -> StepCost:
    model = CostModel(load_model(name), load_device(device), Layout(tp=8, mode=mode))
    return model.step_s([StepShape(rows, rows * 60_000)])


def test_small_chunks_of_a_long_latent_prefix() -> None:
    """512 tokens behind 100k cost R1 4.2 TFLOP a layer and 3.4 for expanding the prefix again: 1.8 times the work of
    the same tokens in one big chunk."""
    model = CostModel(load_model("deepseek-r1"), B200, Layout())
    small = model.step_s([StepShape(chunks=(Chunk(512, 100_000),))]).attention_s
    large = model.step_s([StepShape(chunks=(Chunk(16_384, 100_000 - 8192),))]).attention_s * 512 / 16_384
    assert small / large == pytest.approx(1.8, rel=0.1)


def test_v4_weights_and_room() -> None:
    """~848 GB of MXFP4 and FP8; with its draft layer the checkpoint's 805 GiB."""
    v4 = load_model("deepseek-v4-pro")
    assert weight_bytes(v4, Layout()) == pytest.approx(848e9, rel=0.01)
    assert weight_bytes(v4, Layout(), drafts=True) == pytest.approx(805 * 2**30, rel=0.01)
    assert capacity_tokens(v4, B200, Layout(dp=8, ep=True), Memory(max_num_seqs=16, drafts=True)) > 4e6
