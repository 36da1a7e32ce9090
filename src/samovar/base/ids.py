"""Names for the integers that cross borders. Ids are made by the front end, never inside the core."""

from __future__ import annotations

from typing import NewType

RequestId = NewType("RequestId", int)
"""One generation. Unique for the life of an engine; a choice of an `n`-way request has its own."""

BlockId = NewType("BlockId", int)
"""Index of a block in the pool of one KV group, 0 <= id < num_blocks."""

TransferId = NewType("TransferId", int)
"""One load or store between the device and a tier."""

BlockKey = bytes
"""16 bytes that name the content of a block and of everything before it."""
