"""What a prompt depends on beside its messages: tools and the template's variables, settled once and remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
import json
from typing import Any

import msgspec

from samovar.base.keys import KEY_BYTES
from samovar.text.formats.canonical import canonical_tools
from samovar.text.turns.bounded import Bounded

TOOLS_BYTES = 16 << 20
_NO_TOOLS = b""


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools that a prompt shows, in canonical order."""

    tools: Sequence[Mapping[str, Any]]
    """As they are rendered."""
    digest: bytes = _NO_TOOLS


class Offers:
    """Definitions of tools are long and come again with every turn."""

    def __init__(self, mark: Callable[[Any], Any], max_bytes: int = TOOLS_BYTES) -> None:
        """`mark`: what is done to tools before they are rendered."""
        self._mark = mark
        self._known: Bounded[Offer] = Bounded(max_bytes)

    def of(self, tools: Sequence[Mapping[str, Any]], *, remember: bool = True) -> Offer:
        if not tools:
            return Offer(())
        written = msgspec.json.encode(tools)
        key = sha256(written).digest()[:KEY_BYTES]
        offer = self._known.get(key, touch=remember)
        if offer is None:
            canonical = canonical_tools(tools)
            digest = sha256(msgspec.json.encode(canonical)).digest()[:KEY_BYTES]
            offer = Offer(self._mark(canonical), digest)
            if remember:
                self._known.put(key, offer, 4 * len(written))
        return offer


def settings_digest(offer: Offer, variables: Mapping[str, Any]) -> bytes:
    given = json.dumps(variables, sort_keys=True, default=repr) if variables else ""
    return sha256(given.encode("utf-8", "surrogatepass") + b" " + offer.digest).digest()[:KEY_BYTES]
