"""Every measured kernel of the calibration table beside what the model says of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from samovar.sim.cost.collectives import Exchange, Exchanges
from samovar.sim.cost.experts import ExpertCost
from samovar.sim.cost.layers import LayerCosts, Stack
from samovar.sim.cost.layout import Layout
from samovar.sim.cost.products import product
from samovar.sim.cost.rates import Machine
from samovar.sim.cost.shape import Chunk
from samovar.spec.attention_shape import AttentionShape
from samovar.spec.catalog import load_device, load_kernels, load_model, open_table
from samovar.spec.model_shape import ModelShape
from samovar.spec.number_format import FORMATS


@dataclass(frozen=True)
class KernelRow:
    name: str
    size: str
    low_us: float
    high_us: float
    model_us: float

    @property
    def error(self) -> float:
        """Relative, to the nearer end of what was measured; 0 inside."""
        nearest = min(max(self.model_us, self.low_us), self.high_us)
        return self.model_us / nearest - 1

    def line(self) -> str:
        span = f"{self.low_us:g}" if self.low_us == self.high_us else f"{self.low_us:g} to {self.high_us:g}"
        return f"| {self.name} | {self.size} | {span} | {self.model_us:.0f} | {round(100 * self.error):+d} % |"


DEVICE = load_device("B200")
KERNELS = load_kernels(DEVICE.kernels)
MACHINE = Machine(DEVICE, KERNELS)


def module(model: ModelShape, shape: AttentionShape, tp: int = 1) -> LayerCosts:
    """One layer's attention with its products and nothing else."""
    layout = Layout(tp=tp)
    stack = Stack((replace(shape, layers=1),), 0, 0)
    return LayerCosts(model, stack, MACHINE, layout, Exchanges(DEVICE, KERNELS, tp, 1, tp))


def module_s(costs: LayerCosts, rows: int) -> float:
    times = costs.equal_rows(rows)
    head_floor_s = KERNELS.products["bf16"].floor_s
    return times.projections_s + times.output_s + times.launch_s - head_floor_s


def decoding(name: str, table: str, key: str, costs: LayerCosts) -> Iterator[KernelRow]:
    for rows, context, low, high in open_table("measured", "b200").table(table).rows(key, 4):
        num = int(rows)
        seconds = module_s(costs, num) + costs.attention[0].decode_s(num, num, num * int(context))
        yield KernelRow(name, f"{num} x {context:g} tokens", low, high, seconds * 1e6)


def prompts(name: str, table: str, key: str, costs: LayerCosts) -> Iterator[KernelRow]:
    for new, low, high in open_table("measured", "b200").table(table).rows(key, 3):
        seconds = module_s(costs, int(new)) + costs.attention[0].chunks_s((Chunk(int(new)),))
        yield KernelRow(name, f"{new:g} tokens", low, high, seconds * 1e6)


def product_rows() -> Iterator[KernelRow]:
    for table in open_table("measured", "b200").tables("products"):
        name = table.text("format")
        one = product("ffn", 1, 7168 * 16384, FORMATS[name], MACHINE)
        for rows, low, high in table.rows("points", 3):
            seconds = one.floor_s + max(one.read_s, rows * one.row_s)
            yield KernelRow(f"product, {name}", f"{rows:g} rows", low, high, seconds * 1e6)


def expert_rows() -> Iterator[KernelRow]:
    model = load_model("deepseek-r1")
    assert model.moe
    table = open_table("measured", "b200").table("experts")
    for key, layout in (("ep8", Layout(tp=8, ep=True)), ("tp8", Layout(tp=8))):
        experts = ExpertCost(model, model.moe, MACHINE, layout)
        for tokens, low, high in table.rows(key, 3):
            seconds = experts.floor_s + experts.seconds(tokens)[0]
            yield KernelRow(f"experts, {key.upper()}", f"{tokens:g} tokens", low, high, seconds * 1e6)


def exchange_rows() -> Iterator[KernelRow]:
    exchange = Exchange(KERNELS.collectives["all_reduce"], DEVICE, 8)
    for size, low, high in open_table("measured", "b200").table("all_reduce").rows("graph", 3):
        yield KernelRow("all-reduce, 8 ranks", f"{size / 1e6:g} MB", low, high, exchange.seconds(size) * 1e6)


def all_rows() -> list[KernelRow]:
    r1, v4 = load_model("deepseek-r1"), load_model("deepseek-v4-pro")
    nvfp4 = replace(r1, formats=replace(r1.formats, attention=FORMATS["nvfp4"]))
    mla, mla_bf16 = module(nvfp4, nvfp4.attention[0]), module(r1, r1.attention[0])
    csa, hca = v4.attention
    return [
        *product_rows(),
        *decoding("MLA, 128 heads", "mla", "decode", mla),
        *prompts("MLA prompt, NVFP4", "mla", "prompt", mla),
        *prompts("MLA prompt, bf16", "mla", "prompt_bf16", mla_bf16),
        *decoding("CSA, 128 heads", "v4", "csa_decode", module(v4, csa)),
        *decoding("HCA, 128 heads", "v4", "hca_decode", module(v4, hca)),
        *decoding("CSA, 16 heads", "v4", "csa_decode_tp8", module(v4, csa, 8)),
        *decoding("HCA, 16 heads", "v4", "hca_decode_tp8", module(v4, hca, 8)),
        *prompts("CSA prompt", "v4", "csa_prompt", module(v4, csa)),
        *prompts("HCA prompt", "v4", "hca_prompt", module(v4, hca)),
        *expert_rows(),
        *exchange_rows(),
    ]
