# The native extension, as `native/bind.cpp` defines it. Data is whatever gives a contiguous buffer; ValueError for
# sizes that do not go together. The GIL is released for all but short data. `level`: of `instruction_sets()`, 0 is the
# best.

from collections.abc import Sequence

from _typeshed import ReadableBuffer, WriteableBuffer

LEAST_BYTES: int
"""Of data and of each buffer."""
ENDED: int

def instruction_sets() -> list[str]: ...
def checksum(data: ReadableBuffer, binding: bytes, level: int = 0) -> bytes: ...
def copy(target: WriteableBuffer, source: ReadableBuffer, binding: bytes, cached: bool, level: int = 0) -> bytes: ...

class DirectReads:
    """Ranges of a file into buffers; of each the checksum, an errno, or ENDED."""

    def __init__(self, level: int = 0) -> None: ...
    @property
    def available(self) -> bool: ...
    def read(
        self, fd: int, offsets: Sequence[int], buffers: Sequence[WriteableBuffer], bindings: Sequence[bytes]
    ) -> list[bytes | int]: ...
