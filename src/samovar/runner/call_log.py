"""The core's call log as a file, for `core.replay`: frames of msgpack, each after its length in 4 bytes.

The first frame is the header, the others are calls. The file holds prompts, so only its owner may read it.
"""

from __future__ import annotations

from collections.abc import Iterator
import logging
import os
from pathlib import Path
from typing import BinaryIO

import msgspec

from samovar.base.errors import ConfigError
from samovar.core.calls import Call, LogHeader

log = logging.getLogger(__name__)

_LENGTH_BYTES = 4


class CallLog:
    """Writes through a buffer. A disk that fails ends the log, not the engine."""

    def __init__(self, path: Path) -> None:
        """Creates or overwrites the file; raises ConfigError when it cannot."""
        self._path = path
        self._encoder = msgspec.msgpack.Encoder()
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            raise ConfigError(f"--record-path {path}: cannot be written: {error}", param="record_path") from error
        self._file: BinaryIO | None = os.fdopen(descriptor, "wb", buffering=1 << 20)

    def write(self, record: LogHeader | Call) -> None:
        if self._file is None:
            return
        frame = self._encoder.encode(record)
        try:
            self._file.write(len(frame).to_bytes(_LENGTH_BYTES, "little") + frame)
        except OSError as error:
            log.warning("the call log %s ends here: %s", self._path, error)
            self._drop()

    def close(self) -> None:
        if self._file is None:
            return
        try:
            self._file.close()
        except OSError as error:
            log.warning("the end of the call log %s is lost: %s", self._path, error)
        self._file = None

    def _drop(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError:
                # What failed to be written fails again when the buffer is flushed.
                log.debug("the call log's buffer was dropped")


def read_call_log(path: Path) -> Iterator[LogHeader | Call]:
    """The header, then the calls. A frame cut off by a crash ends it; anything else malformed raises ConfigError."""
    with path.open("rb") as file:
        decoder: msgspec.msgpack.Decoder[LogHeader] | msgspec.msgpack.Decoder[Call]
        decoder = msgspec.msgpack.Decoder(LogHeader)
        while len(prefix := file.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
            length = int.from_bytes(prefix, "little")
            frame = file.read(length)
            if len(frame) < length:
                return
            try:
                yield decoder.decode(frame)
            except msgspec.DecodeError as error:
                raise ConfigError(f"{path}: no call log, or a damaged one: {error}") from error
            decoder = msgspec.msgpack.Decoder(Call)
