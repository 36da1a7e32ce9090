"""The GGUF header reader against gguf's own writer, and against files that end early or hold nonsense."""

from __future__ import annotations

from pathlib import Path
import time

import gguf
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from samovar.base.errors import CheckpointError, ConfigError, UnsupportedFeature
from samovar.spec.gguf_file import read_gguf_header


def write(path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("u32", 7)
    writer.add_int64("i64", -(2**40))
    writer.add_float32("f32", 0.5)
    writer.add_bool("yes", True)
    writer.add_string("text", "größer")
    writer.add_array("words", ["a", "", "c" * 300])
    writer.add_array("ids", list(range(1000)))
    writer.add_tensor("first", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("second", np.arange(5, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write(tmp_path_factory.mktemp("gguf") / "x.gguf").read_bytes()


def test_reads_what_was_written(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf")
    header = read_gguf_header(path)
    meta = header.metadata
    assert meta["general.architecture"] == "llama" and meta["u32"] == 7 and meta["i64"] == -(2**40)
    assert meta["f32"] == 0.5 and meta["yes"] is True and meta["text"] == "größer"
    assert meta["words"] == ["a", "", "c" * 300] and meta["ids"] == list(range(1000))
    first, second = header.tensors["first"], header.tensors["second"]
    assert first.shape == (2, 3) and second.shape == (5,)
    assert np.fromfile(path, np.float32, 6, offset=first.offset).tolist() == [0, 1, 2, 3, 4, 5]
    assert np.fromfile(path, np.float16, 5, offset=second.offset).tolist() == [0, 1, 2, 3, 4]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_header_cut_anywhere_is_a_checkpoint_error(
    data: st.DataObject, whole: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.gguf"
    header_bytes = whole.index(b"second") + len(b"second") + 4 + 8 + 4 + 8
    path.write_bytes(whole[: data.draw(st.integers(0, header_bytes - 1))])
    with pytest.raises(CheckpointError, match=r"cut\.gguf"):
        read_gguf_header(path)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_changed_header_is_read_or_refused(
    data: st.DataObject, whole: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.gguf"
    changed = bytearray(whole)
    at = data.draw(st.integers(0, len(whole) - 9))
    changed[at : at + 8] = data.draw(st.binary(min_size=8, max_size=8))
    path.write_bytes(changed)
    try:
        read_gguf_header(path)
    except ConfigError as error:
        assert "changed.gguf" in str(error)


def test_other_files_and_versions(tmp_path: Path, whole: bytes) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(CheckpointError, match="not a GGUF file"):
        read_gguf_header(tmp_path / "text")
    with pytest.raises(CheckpointError, match="No such file"):
        read_gguf_header(tmp_path / "nothing")
    (tmp_path / "big").write_bytes(whole[:4] + b"\0\0\0\3" + whole[8:])
    with pytest.raises(UnsupportedFeature, match="version"):
        read_gguf_header(tmp_path / "big")


@pytest.mark.model
def test_a_real_header_reads_fast(smollm2_gguf: Path) -> None:
    started = time.process_time()
    header = read_gguf_header(smollm2_gguf)
    assert time.process_time() - started < 1.0
    assert len(header.metadata["tokenizer.ggml.tokens"]) == 49152  # type: ignore[arg-type]
