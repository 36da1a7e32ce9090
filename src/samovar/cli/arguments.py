"""Flags that take several values in vLLM's way: `--served-model-name A B`."""

from __future__ import annotations

from collections.abc import Sequence

LIST_FLAGS = ("--served-model-name", "--api-key")


def spread_lists(arguments: Sequence[str]) -> list[str]:
    """`--flag A B` becomes `--flag A --flag B`, which the parser understands. As with vLLM, such a flag takes every
    word up to the next flag, so a positional model goes before it."""
    spread: list[str] = []
    flag: str | None = None
    for argument in arguments:
        if argument.startswith("-"):
            flag = argument if argument in LIST_FLAGS else None
            if flag is None:
                spread.append(argument)
        elif flag is not None:
            spread += [flag, argument]
        else:
            spread.append(argument)
    return spread
