"""What a file's matrices become: formats, unlike parts of one matrix, the order of columns, and what the log says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize
import numpy as np
from numpy.typing import NDArray
import pytest

pytest.importorskip("torch")
from tests.models.oracle import save_tiny
import torch
from torch import Tensor

from samovar.base.errors import CheckpointError, UnsupportedFeature
from samovar.kernels.table import PACKED_REFERENCE
from samovar.models.load import load_packed_model
from samovar.models.locate import locate
from samovar.models.packing import Packer, alternating, one_after_the_other
from samovar.models.weights import StoredRows, TensorSource

pytestmark = pytest.mark.torch

Kind = GGMLQuantizationType
SHAPE = (64, 256)


@contextmanager
def source_of(**kinds: Kind) -> Iterator[tuple[TensorSource, dict[str, NDArray[np.float32]]]]:
    """Random tensors of these types, and what each keeps of its values."""
    rng = np.random.default_rng(3)
    stored: dict[str, StoredRows] = {}
    values: dict[str, NDArray[np.float32]] = {}
    for name, kind in kinds.items():
        if kind in (Kind.Q4_K, Kind.Q6_K):  # gguf takes these apart, but does not make them
            size = {Kind.Q4_K: 144, Kind.Q6_K: 210}[kind]
            raw = rng.integers(0, 128, (SHAPE[0], size), dtype=np.uint8)
            half = slice(0, 4) if kind == Kind.Q4_K else slice(208, 210)
            raw[:, half] = np.tile(np.array([0.01], dtype=np.float16).view(np.uint8), 2)[: half.stop - half.start]
        else:
            raw = np.ascontiguousarray(quantize(rng.normal(size=SHAPE).astype(np.float32), kind)).view(np.uint8)
        stored[name] = StoredRows(kind.name, raw, None)
        values[name] = np.array(dequantize(raw, kind))

    def read_into(name: str, out: Tensor) -> None:
        out.copy_(torch.from_numpy(values[name]))

    yield (
        TensorSource({name: SHAPE for name in kinds}, lambda name: f"file: {name}", read_into, stored.__getitem__),
        values,
    )


def unpacked(handle: object) -> NDArray[np.float32]:
    return handle.values()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(
    ("kinds", "format", "widened"),
    [
        ((Kind.Q4_K, Kind.Q4_K), "q4_k", ""),
        ((Kind.Q4_K, Kind.Q6_K), "q8", "Q4_K+Q6_K"),
        ((Kind.Q4_1, Kind.Q8_0), "q8", "Q4_1+Q8_0"),
        ((Kind.Q5_1, Kind.Q5_1), "q8", "Q5_1"),
        ((Kind.Q4_0, Kind.F16), "bf16", ""),
        ((Kind.F32, Kind.BF16), "bf16", ""),
    ],
)
def test_two_parts_become_one_matrix(kinds: tuple[Kind, Kind], format: str, widened: str) -> None:
    with source_of(a=kinds[0], b=kinds[1]) as (source, values):
        packer = Packer(source, PACKED_REFERENCE, "auto")
        matrix = packer.matrix(one_after_the_other(["a", "b"], [64, 64]))
        assert (matrix.format, matrix.n, matrix.k) == (format, 128, 256)
        wanted = np.concatenate((values["a"], values["b"]))
        got = unpacked(matrix.handle)
        # a format of its own keeps every value; 8 bits and a half keep 1 in 220 of a group's largest
        limit = 0 if format == "q4_k" else 2**-8 * np.abs(wanted) if format == "bf16" else np.abs(wanted).max() / 220
        assert (np.abs(got - wanted) <= limit).all()
        said = packer.report()
        assert f"as {format}" in said and (f"stored as {widened} and widened to q8" in said) == bool(widened)


def test_gate_and_up_alternate() -> None:
    with source_of(gate=Kind.Q4_1, up=Kind.Q4_1) as (source, values):
        matrix = Packer(source, PACKED_REFERENCE, "auto").matrix(alternating("gate", "up", 64))
        got = unpacked(matrix.handle).reshape(2, 2, 32, 256)
        assert np.array_equal(got[:, 0].reshape(64, 256), values["gate"])
        assert np.array_equal(got[:, 1].reshape(64, 256), values["up"])


def test_what_is_not_finite_is_named() -> None:
    with source_of(a=Kind.F32) as (source, values):
        values["a"][3, 5] = np.inf
        with pytest.raises(UnsupportedFeature, match="file: a holds values that are not finite"):
            Packer(source, PACKED_REFERENCE, "int8").matrix(one_after_the_other(["a"], [64]))


def test_a_tied_embedding_is_packed_once(tmp_path: Path) -> None:
    save_tiny(tmp_path / "tied", tie_word_embeddings=True, hidden_size=96, head_dim=32, intermediate_size=96)
    save_tiny(tmp_path / "own", hidden_size=96, head_dim=32, intermediate_size=96)
    tied, own = (
        load_packed_model(locate(str(tmp_path / name), tmp_path), PACKED_REFERENCE, "auto", 512).weights
        for name in ("tied", "own")
    )
    assert tied.lm_head is tied.embed and len(tied.matrices()) == 1 + 4 * 3
    assert own.lm_head is not own.embed and len(own.matrices()) == 2 + 4 * 3


def test_a_missing_tensor_is_named_before_anything_is_read(tmp_path: Path) -> None:
    save_tiny(tmp_path, max_shard_size="1GB", hidden_size=96, head_dim=32, intermediate_size=96)
    checkpoint = locate(str(tmp_path), tmp_path)
    config = (tmp_path / "config.json").read_text().replace('"num_hidden_layers": 3', '"num_hidden_layers": 4')
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(CheckpointError, match=r"layers\.3"):
        load_packed_model(locate(str(tmp_path), tmp_path), PACKED_REFERENCE, "auto", 512)
    assert load_packed_model(checkpoint, PACKED_REFERENCE, "auto", 512).spec.num_layers == 3
