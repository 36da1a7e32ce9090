"""Flags that take several values in vLLM's way: `--served-model-name A B`."""

from __future__ import annotations

from collections.abc import Sequence

from samovar.base.errors import ConfigError

LIST_FLAGS = ("--served-model-name", "--api-key", "--trace", "--volatile-lines")


def spread_lists(arguments: Sequence[str]) -> list[str]:
    """`--flag A B` becomes `--flag A --flag B`, which the parser understands. As with vLLM, such a flag takes every
    word up to the next flag, so a positional model goes before it. Raises ConfigError for one without any: an unset
    variable in `--api-key $KEY` must not open a server to everyone."""
    spread: list[str] = []
    flag: str | None = None
    num_values = 0
    for argument in [*arguments, "--"]:
        if argument.startswith("-"):
            if flag is not None and num_values == 0:
                raise ConfigError(f"{flag} needs a value", param=flag)
            flag, num_values = (argument if argument in LIST_FLAGS else None), 0
            if flag is None:
                spread.append(argument)
        elif flag is not None:
            spread += [flag, argument]
            num_values += 1
        else:
            spread.append(argument)
    return spread[:-1]
