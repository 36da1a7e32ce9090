"""The other interpreter of a mono step: one function per stage, over plain ops, slow and readable. It keeps the buffers
that the native one keeps, by the same names, so that the two are compared after every stage.
"""

from __future__ import annotations

from collections.abc import Callable
import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samovar.kernels.packed_ops import TILE_TOKENS, Float32Array, PackedOps
from samovar.kernels.rows import Rows, make_rows

Description = dict[str, Any]
"""As `models.mono` makes it."""


@dataclass(slots=True)
class StepState:
    """What the stages of a step pass on. R rows, one token each."""

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    slots: NDArray[np.int64]
    rows: Rows
    logits: Float32Array
    buffers: dict[str, Float32Array]
    """x [R, hidden], qkv [R, (H + 2 Hkv) D] before rotation, attention [R, H D], hidden [R, I]."""


class StageInterpreter:
    """A llama-family model's decode step, stage by stage. Interface of `MonoProgram`; owns no memory of the model's."""

    def __init__(self, ops: PackedOps, model: Description, layers: list[Description]) -> None:
        self._ops = ops
        self._model = model
        self._layers = layers
        self._buffers: dict[str, Float32Array] = {}
        self._stages: dict[str, Callable[[StepState, int], None]] = {
            "embed": self._embed,
            "qkv": self._qkv,
            "attend": self._attend,
            "attention_out": self._attention_out,
            "gate_up": self._gate_up,
            "down": self._down,
            "head": self._head,
        }

    def step(
        self,
        token_ids: NDArray[np.int32],
        positions: NDArray[np.int32],
        slots: NDArray[np.int64],
        tables: NDArray[np.int64],
        logits: Float32Array,
    ) -> None:
        self.run_stages(token_ids, positions, slots, tables, logits, 0, len(self.table()))

    def run_stages(
        self,
        token_ids: NDArray[np.int32],
        positions: NDArray[np.int32],
        slots: NDArray[np.int64],
        tables: NDArray[np.int64],
        logits: Float32Array,
        start: int,
        end: int,
    ) -> list[tuple[str, int]]:
        state = self._state(token_ids, positions, slots, tables, logits)
        stages = self.table()
        for name, layer in stages[start:end]:
            self._stages[name](state, layer)
        return stages

    def table(self) -> list[tuple[str, int]]:
        """Stages and layers (-1 outside the layers), in order. The native program may split a stage's preparation off
        it (`qkv_input`, `merge` and the like): those have nothing to do here."""
        inner = ("qkv", "attend", "attention_out", "gate_up", "down")
        middle = [(name, layer) for layer in range(len(self._layers)) for name in inner]
        return [("embed", -1), *middle, ("head", -1)]

    def buffer(self, name: str, rows: int) -> Float32Array:
        return self._buffers[name][:rows].copy()

    def put(self, name: str, values: Float32Array) -> None:
        """Replaces what the next stage finds: to give it the very input another interpreter had."""
        self._buffers[name][: len(values)] = values

    def _state(
        self,
        token_ids: NDArray[np.int32],
        positions: NDArray[np.int32],
        slots: NDArray[np.int64],
        tables: NDArray[np.int64],
        logits: Float32Array,
    ) -> StepState:
        model, count = self._model, len(token_ids)
        heads, kv_heads, head_dim = model["heads"], model["kv_heads"], model["head_dim"]
        widths = {
            "x": model["hidden"],
            "qkv": (heads + 2 * kv_heads) * head_dim,
            "attention": heads * head_dim,
            "hidden": model["intermediate"],
        }
        if not self._buffers or len(self._buffers["x"]) != count:
            self._buffers = {name: np.zeros((count, width), dtype=np.float32) for name, width in widths.items()}
        block_tokens = self._layers[0]["keys"].shape[1] * TILE_TOKENS
        arrays = [
            _array_at(address, position // block_tokens + 1)
            for address, position in zip(tables.tolist(), positions.tolist(), strict=True)
        ]
        rows = make_rows([1] * count, positions.tolist(), arrays, block_tokens)
        return StepState(token_ids.astype(np.int64), positions.astype(np.int64), slots, rows, logits, self._buffers)

    def _embed(self, step: StepState, layer: int) -> None:
        self._ops.embed(self._model["embed"], step.ids, step.buffers["x"])

    def _qkv(self, step: StepState, layer: int) -> None:
        own = self._layers[layer]
        normal = self._normed(step, own["input_norm"])
        self._ops.linear(normal, own["qkv"], own["qkv_bias"], False, step.buffers["qkv"])

    def _attend(self, step: StepState, layer: int) -> None:
        own, model, ops = self._layers[layer], self._model, self._ops
        heads, rotated = model["heads"], model["heads"] + model["kv_heads"]
        qkv = step.buffers["qkv"].reshape(len(step.ids), -1, model["head_dim"]).copy()
        if own["qk_norm"] is not None:
            for head, weight in enumerate(own["qk_norm"]):
                ops.rms_norm(qkv[:, head], weight, model["eps"], qkv[:, head])
        ops.rope(qkv[:, :rotated], step.positions, model["cos"], model["sin"])
        ops.write_kv(own["keys"], own["values"], step.slots, qkv[:, heads:rotated], qkv[:, rotated:])
        out = step.buffers["attention"].reshape(len(step.ids), heads, -1)
        ops.attention(qkv[:, :heads], own["keys"], own["values"], step.rows, model["attention_scale"], out)

    def _attention_out(self, step: StepState, layer: int) -> None:
        own = self._layers[layer]
        self._ops.linear(step.buffers["attention"], own["o"], own["o_bias"], True, step.buffers["x"])

    def _gate_up(self, step: StepState, layer: int) -> None:
        own = self._layers[layer]
        normal = self._normed(step, own["post_norm"])
        self._ops.linear_swiglu(normal, own["gate_up"], own["gate_up_bias"], step.buffers["hidden"])

    def _down(self, step: StepState, layer: int) -> None:
        own = self._layers[layer]
        self._ops.linear(step.buffers["hidden"], own["down"], own["down_bias"], True, step.buffers["x"])

    def _head(self, step: StepState, layer: int) -> None:
        normal = self._normed(step, self._model["norm"])
        self._ops.linear(normal, self._model["lm_head"], None, False, step.logits)

    def _normed(self, step: StepState, weight: Float32Array) -> Float32Array:
        normal = np.empty_like(step.buffers["x"])
        self._ops.rms_norm(step.buffers["x"], weight, self._model["eps"], normal)
        return normal


def _array_at(address: int, count: int) -> NDArray[np.int64]:
    return np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(address))
