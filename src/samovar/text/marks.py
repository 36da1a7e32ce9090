"""The mark that a client's text gets where it spells a control token, so that a rendered prompt can be told from it.

It is half a character. Valid text never has it alone, and bodies that do are refused, so nobody can send it; templates
copy it like any other character; no encoder of bytes takes it, so it cannot go on unnoticed.
"""

from __future__ import annotations

MARK = "\udfff"


def unmarked(text: str) -> str:
    return text.replace(MARK, "")
