"""Text of ours that a client keeps for us in `encrypted_content` and gives back: a reasoning, or the summary that a
conversation was compacted to.

It is no secret (the client may see what its own model wrote) and proves nothing: a client can say the same in plain
fields of the API.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
import binascii
from typing import Literal

Kind = Literal["reasoning", "summary"]
_MARK = "samovar1:"
"""Names the maker and the version of what follows."""


def seal(kind: Kind, text: str) -> str:
    return f"{_MARK}{kind}:{b64encode(text.encode()).decode()}"


def unseal(kind: Kind, sealed: object) -> str | None:
    """None for whatever was not sealed here, or as something else."""
    mark = f"{_MARK}{kind}:"
    if not isinstance(sealed, str) or not sealed.startswith(mark):
        return None
    try:
        return b64decode(sealed[len(mark) :], validate=True).decode()
    except (binascii.Error, ValueError):
        return None
