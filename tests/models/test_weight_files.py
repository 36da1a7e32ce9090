"""Which files are the weights: one answer for loading, naming and measuring, whatever else lies in the folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.models.test_locate import CONFIG

from samovar.base.errors import CheckpointError
from samovar.models.checkpoint import Checkpoint, open_folder
from samovar.models.weight_files import INDEX, SINGLE


def safetensors(dtype: str, size: int = 8) -> bytes:
    """A file of one tensor, none of whose bytes matter."""
    header = json.dumps({"w": {"dtype": dtype, "shape": [size], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


def folder(at: Path, index: object = None, **files: bytes) -> Checkpoint:
    """`files` by their stem."""
    at.mkdir()
    (at / "config.json").write_text(json.dumps(CONFIG))
    for stem, data in files.items():
        (at / f"{stem}.safetensors").write_bytes(data)
    if index is not None:
        (at / INDEX).write_text(json.dumps(index))
    return open_folder(at)


def test_other_formats_beside_the_weights_do_not_count(tmp_path: Path) -> None:
    """A copy under another name sorts first, is stored in another dtype, and is not what gets loaded."""
    plain = folder(tmp_path / "plain", model=safetensors("BF16"))
    beside = folder(tmp_path / "beside", model=safetensors("BF16"), consolidated=safetensors("F32", 64))
    for checkpoint in (plain, beside):
        assert [path.name for path in checkpoint.weight_files()] == [SINGLE]
        assert checkpoint.stored_dtype() == "bfloat16"
    assert plain.fingerprint() == beside.fingerprint()


def test_an_index_goes_before_a_single_file(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "two.safetensors", "b": "one.safetensors", "c": "two.safetensors"}}
    files = {"one": safetensors("F32"), "two": safetensors("F32"), "model": safetensors("BF16")}
    checkpoint = folder(tmp_path / "m", index, **files)
    assert [path.name for path in checkpoint.weight_files()] == ["one.safetensors", "two.safetensors"]
    assert checkpoint.stored_dtype() == "float32"
    other = folder(tmp_path / "n", index, **{**files, "two": safetensors("F32", 16)})
    assert checkpoint.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/x.safetensors", "sub/x.safetensors", "a\\b", "..", ".", "", "a\0b", "../../../x"]
)
def test_a_shard_s_name_cannot_lead_out_of_the_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(safetensors("F32"))
    checkpoint = folder(tmp_path / "m", {"weight_map": {"w": name}}, model=safetensors("F32"))
    for use in (checkpoint.weight_files, checkpoint.stored_dtype, checkpoint.fingerprint):
        with pytest.raises(CheckpointError, match=r"weight_map puts tensor w into .*; it must be the name of a file"):
            use()


@pytest.mark.parametrize("index", [{}, {"weight_map": {}}, {"weight_map": []}, {"weight_map": 3}, [], None])
def test_an_index_that_names_nothing(index: object, tmp_path: Path) -> None:
    checkpoint = folder(tmp_path / "m", model=safetensors("F32"))
    (tmp_path / "m" / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"index\.json: field weight_map"):
        checkpoint.weight_files()


@pytest.mark.parametrize(
    ("stored", "expected"), [("F32", "float32"), ("BF16", "bfloat16"), ("F16", None), ("F8_E4M3", None)]
)
def test_what_weights_are_stored_in(stored: str, expected: str | None, tmp_path: Path) -> None:
    assert folder(tmp_path / "m", model=safetensors(stored)).stored_dtype() == expected


@pytest.mark.parametrize("data", [b"", b"\xff" * 20, (2).to_bytes(8, "little") + b"{}", safetensors("F32")[:20]])
def test_a_header_that_cannot_be_read_is_named(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"model\.safetensors: its safetensors header cannot be read"):
        folder(tmp_path / "m", model=data).stored_dtype()
