"""Keeps what a tier raises from costing more than the block that it was raised for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from samovar.kv.transfer import Transfer

FAILED = "io"
"""The reason of a block whose move raised."""


def attempt(
    transfer: Transfer,
    positions: Sequence[int],
    move: Callable[[Sequence[int]], None],
    on_error: Callable[[Exception], None],
) -> None:
    """Moves those that are still wanted, all at once. If that raises, each by itself, so that the ones that cannot be
    moved fail alone. `move` may be repeated for a block that it had moved."""
    wanted = [position for position in positions if transfer.wants(position)]
    if not wanted:
        return
    try:
        move(wanted)
    except Exception as error:
        if len(wanted) > 1:
            for position in wanted:
                attempt(transfer, [position], move, on_error)
        else:
            transfer.fail(wanted[0], FAILED)
            on_error(error)
