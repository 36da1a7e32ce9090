"""Prompts under decode context parallelism: a chunk needs the whole context, of which a rank keeps only its share."""

from __future__ import annotations

from samovar.sim.cost.collectives import Exchanges
from samovar.sim.cost.layout import Layout
from samovar.sim.cost.shape import Chunk
from samovar.spec.model_shape import ModelShape


class PrefixGather:
    def __init__(self, model: ModelShape, layout: Layout, exchanges: Exchanges) -> None:
        kv = layout.kv(model)
        self._gather = exchanges.dcp_gather
        self._layers = [(shape.layers, shape.kv_bytes_per_token(kv, layout.tp)) for shape in model.attention]

    def seconds(self, chunks: tuple[Chunk, ...]) -> float:
        """Over all layers; a chunk without context gathers nothing."""
        return sum(
            layers * self._gather.seconds(chunk.context_tokens * token_bytes)
            for chunk in chunks
            if chunk.context_tokens
            for layers, token_bytes in self._layers
        )
