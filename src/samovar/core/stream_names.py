"""What a stream's name says. `Streams` makes them: "tenant NUL session", with "NUL number" behind it for all but the
first stream of a named session, counted from the engine's start."""

from __future__ import annotations


def lasting_name(name: str) -> str:
    """The name if it means the same conversation to whoever starts next, else ""."""
    return name if name.count("\0") == 1 and not name.endswith("\0") else ""
