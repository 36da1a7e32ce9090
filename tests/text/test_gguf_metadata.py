"""Typed access to GGUF metadata, and errors that name file and key."""

from __future__ import annotations

from pathlib import Path
import time

import pytest

from samovar.base.errors import CheckpointError
from samovar.text.gguf_metadata import GgufMetadata, read_gguf_metadata

VALUES: dict[str, object] = {
    "s": "x",
    "i": 3,
    "b": True,
    "f": 0.5,
    "ss": ["a"],
    "is": [1, 2],
    "fs": [0.5, 1],
    "empty": [],
}
KINDS = {
    "string": {"s"},
    "integer": {"i"},
    "flag": {"b"},
    "strings": {"ss", "empty"},
    "integers": {"is", "empty"},
    "numbers": {"is", "fs", "empty"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_accessor_takes_its_type_only(kind: str) -> None:
    metadata = GgufMetadata(Path("some.gguf"), VALUES)
    accessor = getattr(metadata, kind)
    assert accessor("absent") is None
    for key, value in VALUES.items():
        if key in KINDS[kind]:
            assert accessor(key) == value
        else:
            with pytest.raises(CheckpointError, match=rf"some\.gguf: {key} is a"):
                accessor(key)


def test_broken_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    for content in (b"", b"GGUF", b"GGML" + bytes(100), b"GGUF\x03\0\0\0" + b"\xff" * 16):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"broken\.gguf"):
            read_gguf_metadata(path)


@pytest.mark.model
def test_a_real_header_reads_fast(smollm2_gguf: Path, tmp_path: Path) -> None:
    started = time.process_time()
    metadata = read_gguf_metadata(smollm2_gguf)
    assert time.process_time() - started < 1.0
    assert len(metadata.strings("tokenizer.ggml.tokens") or []) == 49152
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(smollm2_gguf.read_bytes()[:500_000])
    with pytest.raises(CheckpointError, match=r"cut\.gguf"):
        read_gguf_metadata(cut)
