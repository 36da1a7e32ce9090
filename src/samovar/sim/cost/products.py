"""Dense matrix products of a layer: one line per matrix, from a model's shapes and a layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from samovar.sim.cost.layout import Layout
from samovar.sim.cost.rates import Machine
from samovar.spec.attention_shape import AttentionShape, format_of
from samovar.spec.model_shape import ModelShape
from samovar.spec.number_format import NumberFormat

Part = Literal["projections", "output", "ffn", "head"]


@dataclass(frozen=True, slots=True)
class Product:
    """`layers` equal products: floors apart, each takes max(read_s, rows * row_s)."""

    part: Part
    layers: int
    floor_s: float
    read_s: float
    row_s: float


@dataclass(frozen=True, slots=True)
class PartTimes:
    """Seconds by part, floors together, and how much of it all reading bounds."""

    projections_s: float
    output_s: float
    ffn_s: float
    head_s: float
    floor_s: float
    bandwidth_s: float


def product(part: Part, layers: int, elements: float, weights: NumberFormat, machine: Machine) -> Product:
    rates = machine.products(weights)
    return Product(part, layers, rates.floor_s, elements * weights.bytes * rates.byte_s, 2 * elements * rates.op_s)


def attention_products(
    model: ModelShape, shapes: Iterable[AttentionShape], machine: Machine, layout: Layout
) -> list[Product]:
    """Products around the attention. With `dcp_q_replicate` a rank computes the queries of its whole DCP group."""
    found = []
    for shape in shapes:
        for matrix in shape.matrices(model.hidden_size):
            elements = matrix.elements_on(layout.tp)
            if layout.dcp_q_replicate and matrix.split and matrix.part == "projections":
                elements *= layout.dcp
            weights = format_of(matrix, model.formats.attention)
            found.append(product(matrix.part, shape.layers, elements, weights, machine))
    return found


def dense_products(model: ModelShape, machine: Machine, layout: Layout) -> list[Product]:
    """Feed-forward layers without experts, gate and up in one product."""
    if not model.dense_layers:
        return []
    return _ffn(model.dense_layers, model.dense_parameters, model, machine, layout)


def shared_products(model: ModelShape, layers: int, machine: Machine, layout: Layout) -> list[Product]:
    """Shared experts, which every token meets."""
    return _ffn(layers, model.shared_parameters, model, machine, layout) if model.shared_parameters else []


def _ffn(layers: int, parameters: int, model: ModelShape, machine: Machine, layout: Layout) -> list[Product]:
    weights, elements = model.formats.ffn, parameters / layout.tp
    return [
        product("ffn", layers, elements * 2 / 3, weights, machine),
        product("ffn", layers, elements / 3, weights, machine),
    ]


def head_product(model: ModelShape, machine: Machine, layout: Layout) -> Product:
    return product("head", 1, model.vocab_size * model.hidden_size / layout.tp, model.formats.head, machine)


def part_times(products: Sequence[Product], rows: int) -> PartTimes:
    times: dict[Part, float] = {"projections": 0.0, "output": 0.0, "ffn": 0.0, "head": 0.0}
    floor = bandwidth = 0.0
    for item in products:
        multiplied = rows * item.row_s
        bound = item.read_s >= multiplied
        seconds = item.layers * (item.read_s if bound else multiplied)
        times[item.part] += seconds
        floor += item.layers * item.floor_s
        bandwidth += seconds if bound else 0.0
    return PartTimes(times["projections"], times["output"], times["ffn"], times["head"], floor, bandwidth)
