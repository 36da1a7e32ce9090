"""A value from outside as it may stand in an error message or a log line: short, one line, printable ASCII."""

from __future__ import annotations

SHOWN_CHARACTERS = 60
SHOWN_LEVELS = 4


def shown(value: object) -> str:
    """A JSON value (null, true, ..., text in single quotes), cut short, with everything unprintable escaped."""
    text = _text(value, SHOWN_LEVELS)
    return text if len(text) <= 2 * SHOWN_CHARACTERS else f"{text[: 2 * SHOWN_CHARACTERS]}..."


def _text(value: object, levels: int) -> str:
    if isinstance(value, (list, dict)):
        return _container(value, levels)
    if isinstance(value, str) and len(value) > SHOWN_CHARACTERS:
        return f"{value[:SHOWN_CHARACTERS]!a}..."
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and value.bit_length() > 256:
        return "a number of more than 256 bits"
    return ascii(value)


def _container(value: list[object] | dict[object, object], levels: int) -> str:
    kind = "an array" if isinstance(value, list) else "an object"
    if value and (len(value) > SHOWN_CHARACTERS or not levels):
        return f"{kind} of {len(value)}"
    if isinstance(value, list):
        return f"[{', '.join(_text(item, levels - 1) for item in value)}]"
    return f"{{{', '.join(f'{_text(key, 0)}: {_text(item, levels - 1)}' for key, item in value.items())}}}"
