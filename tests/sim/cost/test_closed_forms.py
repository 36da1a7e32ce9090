"""Each formula of the cost model, worked out by hand for a machine with round figures."""

from __future__ import annotations

from dataclasses import replace
import math

import pytest

from samovar.sim.cost.layout import Layout
from samovar.sim.cost.roofline import CostModel, padded_rows
from samovar.sim.cost.shape import Chunk, StepShape
from samovar.sim.cost.step_cost import StepCost
from samovar.spec.kernels import Launch, MonoEfficiency, StepOverhead
from samovar.spec.model_shape import ModelShape
from tests.sim.cost.plain import BYTES_PER_S, DEVICE, FLOPS, GQA, KERNELS, KINDS, MLA, MOE, NETWORK, V4

LATENCY = 10e-6


def cost(model: ModelShape, layout: Layout, *shapes: StepShape) -> StepCost:
    return CostModel(model, DEVICE, layout, KERNELS).step_s(shapes)


def exchange_s(num_bytes: float, ranks: int) -> float:
    """(ranks - 1) / ranks of the bytes leave a rank; 8 ranks were measured."""
    return LATENCY + num_bytes / NETWORK * ((ranks - 1) / ranks) / (7 / 8)


class TestGqa:
    """(a): h = 1000, 16 heads of 100, 4 KV heads, 10 layers, FFN 3000, bf16."""

    def test_products_of_a_few_rows_read_the_weights(self) -> None:
        found = cost(GQA, Layout(), StepShape(8, 0))
        assert found.projections_s == pytest.approx(10 * 1000 * (16 + 8) * 100 * 2 / BYTES_PER_S)
        assert found.output_s == pytest.approx(10 * 16 * 100 * 1000 * 2 / BYTES_PER_S)
        assert found.ffn_s == pytest.approx(10 * 3 * 1000 * 3000 * 2 / BYTES_PER_S)
        assert found.head_s == pytest.approx(5000 * 1000 * 2 / BYTES_PER_S)

    def test_products_of_many_rows_multiply(self) -> None:
        found = cost(GQA, Layout(), StepShape(chunks=(Chunk(4000),)))
        assert found.projections_s == pytest.approx(10 * 2 * 4000 * 1000 * 24 * 100 / FLOPS)
        assert found.ffn_s == pytest.approx(10 * 6 * 4000 * 1000 * 3000 / FLOPS)

    def test_decoding_reads_keys_and_values(self) -> None:
        found = cost(GQA, Layout(), StepShape(8, 400_000))
        assert found.attention_s == pytest.approx(10 * 400_000 * 2 * 4 * 100 * 2 / BYTES_PER_S)

    def test_many_drafts_multiply(self) -> None:
        """4 operations per head, dimension, row and token; the context is read once for all rows of a sequence."""
        rows = 1024
        found = cost(GQA, Layout(), StepShape(2, 100_000, rows))
        assert found.attention_s == pytest.approx(10 * 4 * 16 * 100 * rows * 100_000 / FLOPS)

    def test_prompts(self) -> None:
        found = cost(GQA, Layout(), StepShape(chunks=(Chunk(500, 20_000), Chunk(2000))))
        pairs = 500 * (20_000 + 250) + 2000 * 1000
        read = (20_500 + 2000) * 2 * 4 * 100 * 2 * 10 / BYTES_PER_S
        assert found.attention_s == pytest.approx(10 * 4 * 16 * 100 * pairs / FLOPS)
        assert found.attention_s > read

    def test_a_short_chunk_behind_a_long_context_reads(self) -> None:
        found = cost(GQA, Layout(), StepShape(chunks=(Chunk(1, 100_000),)))
        assert found.attention_s == pytest.approx(10 * 100_001 * 2 * 4 * 100 * 2 / BYTES_PER_S)

    def test_tensor_parallel(self) -> None:
        """Eight ranks, four KV heads: two ranks read the same one. Two all-reduces a layer."""
        found = cost(GQA, Layout(tp=8), StepShape(8, 400_000))
        assert found.projections_s == pytest.approx(10 * 1000 * (16 / 8 + 2 * 1) * 100 * 2 / BYTES_PER_S)
        assert found.attention_s == pytest.approx(10 * 400_000 * 2 * 1 * 100 * 2 / BYTES_PER_S)
        assert found.collectives_s == pytest.approx(20 * exchange_s(8 * 1000 * 2, 8))

    def test_context_parallel_over_ranks_that_keep_the_same_head(self) -> None:
        found = cost(GQA, Layout(tp=8, dcp=2, dcp_comm="a2a"), StepShape(8, 400_000))
        assert found.attention_s == pytest.approx(10 * 200_000 * 2 * 1 * 100 * 2 / BYTES_PER_S)
        heads = 16 * 2 // 8
        query = exchange_s(8 * heads * 100 * 2, 2)
        output = exchange_s(8 * heads * (100 * 2 + 4), 2)
        assert found.collectives_s == pytest.approx(20 * exchange_s(8 * 1000 * 2, 8) + 10 * (query + output))


class TestExperts:
    """64 experts, 4 of them, 500 wide, in 8 of 10 layers; 200 shared."""

    EXPERT = 3 * 1000 * 500
    SHARED = 8 * 3 * 1000 * 200 * 2 / BYTES_PER_S
    DENSE = 2 * 3 * 1000 * 3000 * 2 / BYTES_PER_S

    def test_only_experts_that_tokens_reach_are_read(self) -> None:
        found = cost(MOE, Layout(), StepShape(8, 0))
        active = 64 * (1 - (1 - 4 / 64) ** 8)
        read = active * self.EXPERT * 2 / BYTES_PER_S
        multiplied = 2 * self.EXPERT * 8 * 4 / FLOPS
        assert found.ffn_s == pytest.approx(self.DENSE + self.SHARED + 8 * math.hypot(read, multiplied))
        assert 0 < multiplied < read

    def test_one_token_reads_its_own(self) -> None:
        found = cost(MOE, Layout(), StepShape(1, 0))
        read, multiplied = 4 * self.EXPERT * 2 / BYTES_PER_S, 2 * self.EXPERT * 4 / FLOPS
        assert found.ffn_s == pytest.approx(self.DENSE + self.SHARED + 8 * math.hypot(read, multiplied))

    @pytest.mark.parametrize("ep", [True, False])
    def test_eight_ranks_share_the_groups_tokens(self, ep: bool) -> None:
        """Attention, dense layers and shared experts are each rank's own; experts are divided, whole or in slices. The
        busiest rank of whole ones has more than its share."""
        kernels = replace(KERNELS, expert_imbalance=1.5)
        model = CostModel(MOE, DEVICE, Layout(dp=8, ep=ep), kernels)
        found = model.step_s([StepShape(8, 0)] * 8)
        read = 64 / 8 * (1 - (1 - 4 / 64) ** 64) * self.EXPERT * 2 / BYTES_PER_S
        multiplied = (1.5 if ep else 1.0) * 2 * self.EXPERT * 64 * 4 / 8 / FLOPS
        assert found.ffn_s == pytest.approx(self.DENSE + self.SHARED + 8 * math.hypot(read, multiplied))
        assert found.projections_s == pytest.approx(10 * 1000 * 24 * 100 * 2 / BYTES_PER_S)

    def test_gather_and_scatter_carry_all_tokens(self) -> None:
        found = cost(MOE, Layout(dp=8, ep=True), *[StepShape(8, 0)] * 8)
        assert found.collectives_s == pytest.approx(8 * 2 * exchange_s(64 * 1000 * 2, 8))

    def test_dispatch_carries_a_ranks_choices(self) -> None:
        found = cost(MOE, Layout(dp=8, ep=True, moe_comm="a2a"), *[StepShape(8, 0)] * 8)
        assert found.collectives_s == pytest.approx(8 * exchange_s(8 * 4 * 1000 * 3, 8))

    def test_a_fused_exchange_hides_behind_the_experts(self) -> None:
        few = cost(MOE, Layout(dp=8, ep=True, moe_comm="fused"), *[StepShape(8, 0)] * 8)
        assert few.collectives_s == 0
        long = cost(MOE, Layout(dp=8, ep=True, moe_comm="fused"), *[StepShape(chunks=(Chunk(8000),))] * 8)
        experts = long.ffn_s - 8 * 2 * 8000 * 3 * 1000 * 200 / FLOPS - 2 * 6 * 8000 * 1000 * 3000 / FLOPS
        assert long.collectives_s == pytest.approx(8 * exchange_s(8000 * 4 * 1000 * 3, 8) - experts)

    def test_tensor_and_data_parallel_together(self) -> None:
        """Two ranks share attention and dense layers and reduce after both; all eight share the experts."""
        found = cost(MOE, Layout(tp=2, dp=4, ep=True), *[StepShape(8, 0)] * 4)
        reduces = (10 + 2) * exchange_s(8 * 1000 * 2, 2)
        assert found.collectives_s == pytest.approx(reduces + 8 * 2 * exchange_s(32 * 1000 * 2, 8))

    def test_overlap(self) -> None:
        none = cost(MOE, Layout(dp=8, ep=True), *[StepShape(8, 0)] * 8)
        half = cost(MOE, Layout(dp=8, ep=True, overlap=0.5), *[StepShape(8, 0)] * 8)
        computing = none.total_s - none.collectives_s
        assert half.total_s == pytest.approx(none.total_s - 0.5 * min(computing, none.collectives_s))


class TestMla:
    """(b), (c), (d): 16 heads, latent 200 + 40, 60 + 40 per query, 80 per value, fp8 KV at 2 PFLOP/s."""

    def test_products(self) -> None:
        found = cost(MLA, Layout(), StepShape(8, 0))
        elements = 1000 * (300 + 240) + 300 * 16 * 100 + 200 * 16 * 60
        assert found.projections_s == pytest.approx(10 * elements * 2 / BYTES_PER_S)
        assert found.output_s == pytest.approx(10 * (200 * 16 * 80 + 16 * 80 * 1000) * 2 / BYTES_PER_S)

    def test_decoding_in_the_latent_space(self) -> None:
        read = 10 * 400_000 * 240 / BYTES_PER_S
        assert cost(MLA, Layout(), StepShape(8, 400_000)).attention_s == pytest.approx(read)
        rows = 64
        multiplied = 10 * 2 * 16 * (2 * 200 + 40) * rows * 400_000 / (2 * FLOPS)
        found = cost(MLA, Layout(), StepShape(8, 400_000, rows))
        assert found.attention_s == pytest.approx(multiplied) and multiplied > read

    def test_tensor_parallel_reads_the_whole_latent(self) -> None:
        found = cost(MLA, Layout(tp=8), StepShape(8, 400_000))
        read = 10 * 400_000 * 240 / BYTES_PER_S
        multiplied = 10 * 2 * 2 * (2 * 200 + 40) * 400_000 / (2 * FLOPS)
        assert found.attention_s == pytest.approx(read) and multiplied < read
        down, rest = 1000 * 540, 300 * 16 * 100 + 200 * 16 * 60
        assert found.projections_s == pytest.approx(10 * (down + rest / 8) * 2 / BYTES_PER_S)

    def test_prompts_take_the_cheaper_of_two_ways(self) -> None:
        """Expanding a prefix of P tokens again costs 2 P 200 16 (60 + 80); a pair then costs 180 instead of 440."""
        for new, context in ((10, 10_000), (2000, 10_000), (500, 0)):
            found = cost(MLA, Layout(), StepShape(chunks=(Chunk(new, context),)))
            pairs = new * (context + new / 2)
            absorbed = 2 * 16 * 440 * pairs
            expanded = 2 * 16 * 180 * pairs + 2 * context * 200 * 16 * 140
            read = (context + new) * 240 / BYTES_PER_S
            assert found.attention_s == pytest.approx(10 * max(min(absorbed, expanded) / (2 * FLOPS), read))
        assert 2 * 16 * 440 * 10 * 10_005 < 2 * 16 * 180 * 10 * 10_005 + 2 * 10_000 * 200 * 16 * 140

    def test_small_chunks_expand_the_prefix_again_and_again(self) -> None:
        whole = cost(MLA, Layout(), StepShape(chunks=(Chunk(4000, 50_000),))).attention_s
        parts = [
            cost(MLA, Layout(), StepShape(chunks=(Chunk(500, 50_000 + at),))).attention_s for at in range(0, 4000, 500)
        ]
        assert sum(parts) > 1.2 * whole

    @pytest.mark.parametrize("comm", ["a2a", "ag_rs"])
    @pytest.mark.parametrize("replicate", [True, False])
    def test_decode_context_parallel(self, comm: str, replicate: bool) -> None:
        layout = Layout(tp=8, dcp=8, dcp_comm=comm, dcp_q_replicate=replicate)  # type: ignore[arg-type]
        found = cost(MLA, layout, StepShape(8, 400_000))
        read = 10 * 50_000 * 240 / BYTES_PER_S
        multiplied = 10 * 2 * 16 * 440 * 50_000 / (2 * FLOPS)
        assert found.attention_s == pytest.approx(max(read, multiplied))
        outputs, sums = 8 * 16 * 200 * 2, 8 * 16 * 4
        each = 0.0 if replicate else exchange_s(8 * 16 * 240 * 2, 8)
        if comm == "a2a":
            each += exchange_s(outputs + sums, 8)
        else:
            each += exchange_s(sums * 8, 8) + exchange_s(outputs, 8)
        reduces = 20 * exchange_s(8 * 1000 * 2, 8)
        assert found.collectives_s == pytest.approx(reduces + 10 * each)
        share = 1.0 if replicate else 1 / 8
        down, rest = 1000 * 540, (300 * 16 * 100 + 200 * 16 * 60) * share
        assert found.projections_s == pytest.approx(10 * (down + rest) * 2 / BYTES_PER_S)

    def test_prompts_under_dcp_gather_their_context(self) -> None:
        with_context = cost(MLA, Layout(tp=8, dcp=8), StepShape(chunks=(Chunk(100, 30_000), Chunk(100))))
        without = cost(MLA, Layout(tp=8, dcp=8), StepShape(chunks=(Chunk(200),)))
        assert with_context.collectives_s - without.collectives_s == pytest.approx(10 * exchange_s(30_000 * 240, 8))


class TestCompressed:
    """(e): 5 layers CSA (a record per 4 tokens, 256 chosen), 5 HCA (per 128), windows of 128, records of 300 bytes."""

    def test_decoding(self) -> None:
        sequences, per, each = 4, 2, 64_000
        found = cost(V4, Layout(), StepShape(sequences, sequences * each, per))
        rows, op = sequences * per, 1 / (2 * FLOPS)
        records = each / 4
        scan = max(sequences * records * 40 / BYTES_PER_S, rows * records * 2 * 8 * 50 * op)
        chosen = 256 + 128
        csa = max(rows * chosen * 300 / BYTES_PER_S, rows * chosen * 4 * 16 * 200 * op)
        keys = each / 128 + 128
        hca = max(sequences * keys * 300 / BYTES_PER_S, rows * keys * 4 * 16 * 200 * op)
        assert found.attention_s == pytest.approx(5 * (scan + csa + hca))

    def test_a_short_context_is_attended_to_whole(self) -> None:
        found = cost(V4, Layout(), StepShape(1, 400))
        csa = max((100 + 128) * 300 / BYTES_PER_S, (100 + 128) * 4 * 16 * 200 / (2 * FLOPS))
        hca = max((400 / 128 + 128) * 300 / BYTES_PER_S, (400 / 128 + 128) * 4 * 16 * 200 / (2 * FLOPS))
        scan = max(100 * 40 / BYTES_PER_S, 100 * 2 * 8 * 50 / (2 * FLOPS))
        assert found.attention_s == pytest.approx(5 * (scan + csa + hca))

    def test_prompts(self) -> None:
        new, context = 512, 100_000
        found = cost(V4, Layout(), StepShape(chunks=(Chunk(new, context),)))
        middle, op = context + new / 2, 1 / (2 * FLOPS)
        csa = new * (middle / 4 * 2 * 8 * 50 + (256 + 128) * 4 * 16 * 200) * op
        hca = new * (middle / 128 + 128) * 4 * 16 * 200 * op
        assert found.attention_s == pytest.approx(5 * (csa + hca))

    def test_tensor_parallel_repeats_compressor_and_index(self) -> None:
        found = cost(V4, Layout(tp=8), StepShape(1, 0))
        width = 16 * 200
        everywhere = 2 * 1000 * (300 + 200) + 2 * 1000 * 200 + 2 * 1000 * 400
        everywhere += 2 * 1000 * 100 + 300 * 8 * 50 + 1000 * 8
        divided = 2 * 300 * width
        assert found.projections_s == pytest.approx(5 * (everywhere + divided / 8) * 2 / BYTES_PER_S)

    def test_context_parallel_divides_records_not_windows(self) -> None:
        found = cost(V4, Layout(tp=8, dcp=8), StepShape(2, 256_000))
        op, each = 1 / (2 * FLOPS), 128_000
        scan = max(2 * each / 4 * 40 / BYTES_PER_S, 2 * each / 4 * 2 * 8 * 50 * op) / 8
        chosen = 256 / 8 + 128
        csa = max(2 * chosen * 300 / BYTES_PER_S, 2 * chosen * 4 * 16 * 200 * op)
        keys = each / 128 / 8 + 128
        hca = max(2 * keys * 300 / BYTES_PER_S, 2 * keys * 4 * 16 * 200 * op)
        assert found.attention_s == pytest.approx(5 * (scan + csa + hca))


class TestLaunching:
    """(g): floors in a graph, a host that launches one kernel at a time, stages of mono decode."""

    KERNELS = replace(
        KERNELS,
        launch=Launch(eager_op_s=100e-6, graph_op_s=2e-6, ops_per_module=3),
        products={name: replace(item, floor_s=3e-6) for name, item in KERNELS.products.items()},
        attention={key: replace(item, floor_s=7e-6, row_head_s=1e-9) for key, item in KERNELS.attention.items()},
        mono=MonoEfficiency(1e-6, dict.fromkeys(KINDS, 5), dict.fromkeys(KINDS, 1), 1.0, 0.01, 64),
        step=StepOverhead(50e-3, 4e-3, 1e-3, 1e-6, 2e-6),
    )

    def test_a_graph_pays_a_floor_per_kernel(self) -> None:
        found = CostModel(GQA, DEVICE, Layout(), self.KERNELS).step_s([StepShape(8, 8000)])
        assert found.launch_s == pytest.approx((10 * 4 + 1) * 3e-6 + 10 * 7e-6)
        assert found.seam_s == pytest.approx(10 * 2 * 2e-6)
        assert found.host_s == pytest.approx(1e-3 + 8e-6 + 16e-6) and found.path == "graph"
        plain = cost(GQA, Layout(), StepShape(8, 8000))
        assert found.attention_s == pytest.approx(plain.attention_s + 10 * 8 * 16 * 1e-9)

    def test_an_eager_step_waits_for_its_host(self) -> None:
        found = CostModel(GQA, DEVICE, Layout(mode="eager"), self.KERNELS).step_s([StepShape(8, 8000)])
        kernels = 10 * 4 + 1 + 10 * 2 + 10 * 3
        assert found.total_s - found.host_s == pytest.approx(kernels * 100e-6) and found.path == "eager"

    def test_a_step_with_a_prompt_pays_its_floor(self) -> None:
        found = CostModel(GQA, DEVICE, Layout(), self.KERNELS).step_s([StepShape(8, 8000, 1, (Chunk(10),))])
        assert found.prefill_floor_s == 50e-3 and found.path == "eager"

    def test_ranks_of_a_group_agree(self) -> None:
        found = CostModel(MOE, DEVICE, Layout(dp=8, ep=True), self.KERNELS).step_s([StepShape(8, 8000)] * 8)
        assert found.host_s == pytest.approx(4e-3 + 1e-3 + 8e-6 + 16e-6)

    def test_mono_pays_stages_and_few_launches(self) -> None:
        found = CostModel(GQA, DEVICE, Layout(tp=4, mode="mono"), self.KERNELS).step_s([StepShape(1, 1000)])
        assert found.launch_s == pytest.approx(10 * (5 * 1e-6 + 2e-6)) and found.seam_s == 0
        one_hop, two_hops = 1000 * 4 * 3 / NETWORK, 1000 * 4 * 3 * 2 / 4 / NETWORK + 1e-6
        assert found.collectives_s == pytest.approx(20 * min(one_hop, two_hops)) and found.path == "mono"

    def test_mono_ends_at_its_rows_and_at_prompts(self) -> None:
        model = CostModel(GQA, DEVICE, Layout(mode="mono"), replace(self.KERNELS, launch=Launch(0, 1e-3, 0)))
        assert model.step_s([StepShape(64, 64)]).path == "mono"
        assert model.step_s([StepShape(65, 65)]).path == "graph"
        assert model.step_s([StepShape(13, 13, 5)]).path == "graph"
        assert model.step_s([StepShape(1, 1, 1, (Chunk(1),))]).path == "eager"

    def test_mono_gives_way_where_it_would_be_slower(self) -> None:
        slow = replace(self.KERNELS, mono=replace(self.KERNELS.mono, stage_s=1e-3))
        assert CostModel(GQA, DEVICE, Layout(mode="mono"), slow).step_s([StepShape(1, 1)]).path == "graph"


class TestGroups:
    def test_the_slowest_rank_is_waited_for(self) -> None:
        shapes = [StepShape(2, 1000), StepShape(3, 90_000), StepShape(1, 20_000), StepShape()]
        found = cost(MLA, Layout(dp=4, ep=True), *shapes)
        alone = cost(MLA, Layout(), StepShape(3, 90_000))
        assert found.slowest_rank == 1 and found.attention_s == pytest.approx(alone.attention_s)

    def test_more_sequences_may_outweigh_a_longer_context(self) -> None:
        """An index scan apart, V4's rows cost the same however long their contexts."""
        shapes = [StepShape(1, 2100), StepShape(8, 2000)]
        found = cost(V4, Layout(dp=2, ep=True), *shapes)
        assert found.slowest_rank == 1
        assert found.attention_s == pytest.approx(cost(V4, Layout(), StepShape(8, 2000)).attention_s)

    def test_one_ranks_prompt_is_everyones(self) -> None:
        quiet = [StepShape(4, 4000)] * 8
        one = cost(MLA, Layout(dp=8, ep=True), *quiet[:5], StepShape(4, 4000, 1, (Chunk(2000),)), *quiet[6:])
        assert one.slowest_rank == 5 and one.total_s > 1.5 * cost(MLA, Layout(dp=8, ep=True), *quiet).total_s

    def test_graphs_pad_and_all_ranks_pad_alike(self) -> None:
        assert [padded_rows(n) for n in (0, 1, 2, 3, 5, 8, 9, 256, 257, 300)] == [1, 1, 2, 4, 8, 8, 16, 256, 272, 304]
        nine = cost(MOE, Layout(dp=8, ep=True), *[StepShape(9, 0)], *[StepShape(2, 0)] * 7)
        sixteen = cost(MOE, Layout(dp=8, ep=True), *[StepShape(16, 0)] * 8)
        assert nine.ffn_s == pytest.approx(sixteen.ffn_s)

    def test_a_step_with_a_prompt_runs_no_fewer_rows_than_its_graph_would(self) -> None:
        """1001 decoding rows are padded to 1008, and one token of a prompt more does not make that cheaper."""
        found = cost(GQA, Layout(), StepShape(1001, 1001, 1, (Chunk(1),)))
        assert found.projections_s == pytest.approx(10 * 2 * 1008 * 1000 * 24 * 100 / FLOPS)

    def test_more_ranks_than_reach_each_other_use_the_network(self) -> None:
        found = cost(MOE, Layout(dp=16, ep=True), *[StepShape(8, 0)] * 16)
        each = LATENCY + 5e-6 + 128 * 1000 * 2 / (NETWORK / 4) * (15 / 16) / (7 / 8)
        assert found.collectives_s == pytest.approx(8 * 2 * each)

    def test_a_wrong_number_of_shapes(self) -> None:
        with pytest.raises(ValueError, match="2 shapes for 8 ranks"):
            cost(MOE, Layout(dp=8, ep=True), StepShape(), StepShape())


class TestDrafts:
    def test_each_draft_runs_through_the_draft_layer_and_the_head(self) -> None:
        without = cost(V4, Layout(), StepShape(8, 8000, 1))
        three = cost(V4, Layout(), StepShape(8, 8000, 4))
        assert without.draft_s == 0
        one = replace(V4, attention=(V4.draft.attention,), dense_layers=0, moe=replace(V4.moe, layers=1), draft=None)  # type: ignore[union-attr,type-var]
        layer = cost(one, Layout(), StepShape(8, 8000))
        assert three.draft_s == pytest.approx(3 * layer.total_s)

    def test_a_model_without_draft_layers_pays_for_verifying_alone(self) -> None:
        assert cost(MLA, Layout(), StepShape(8, 8000, 4)).draft_s == 0
