"""A value from outside as it may stand in an error message or a log line: short, one line, printable ASCII."""

from __future__ import annotations

SHOWN_CHARACTERS = 60


def shown(value: object) -> str:
    """The representation of a JSON value (null, true, ...), cut short, with everything unprintable escaped."""
    if isinstance(value, (list, dict)) and len(value) > SHOWN_CHARACTERS:
        return f"{'an array' if isinstance(value, list) else 'an object'} of {len(value)}"
    if isinstance(value, str) and len(value) > SHOWN_CHARACTERS:
        return f"{value[:SHOWN_CHARACTERS]!a}..."
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return "a number of more than 256 bits"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = ascii(value)
    return text if len(text) <= 2 * SHOWN_CHARACTERS else f"{text[: 2 * SHOWN_CHARACTERS]}..."
