"""Trace files as bytes: gzip unpacked, a byte order mark left out, whatever the name says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import gzip
from io import BufferedIOBase
from pathlib import Path
import zlib

from samovar.base.errors import TraceError

SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@contextmanager
def open_trace(path: Path) -> Iterator[BufferedIOBase]:
    """The file's text in UTF-8, to be read once from front to back. Raises TraceError when it cannot be read, also
    while it is being read."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            file = gzip.GzipFile(fileobj=raw, mode="rb") if packed else raw
            if file.peek(len(_BYTE_ORDER_MARK)).startswith(_BYTE_ORDER_MARK):
                file.read(len(_BYTE_ORDER_MARK))
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: not a whole gzip file: {error}") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None


def is_trace(path: Path) -> bool:
    """By its name; of a folder's files only these are read."""
    return path.name.endswith(SUFFIXES)


def without_gz(path: Path) -> Path:
    """The name it has when unpacked."""
    return path.with_suffix("") if path.suffix == ".gz" else path
