"""Files of one JSON object a line, with errors that name file and line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from samovar.base.errors import TraceError
from samovar.workload.trace_file import open_trace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Line:
    path: Path
    number: int
    data: bytes

    def error(self, reason: str) -> TraceError:
        return TraceError(f"{self.path}: line {self.number}: {reason}")


def lines_of(path: Path) -> Iterator[Line]:
    """Lines that are not blank. Raises TraceError when the file cannot be read."""
    with open_trace(path) as file:
        for number, data in enumerate(file, 1):
            if data.strip():
                yield Line(path, number, data)


def located(line: Line, decode: Callable[[bytes], T]) -> T:
    """Raises TraceError with line and JSON path for what does not decode."""
    try:
        return decode(line.data)
    except msgspec.ValidationError as error:
        raise line.error(validation_text(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise line.error(f"not JSON: {error}") from None


def validation_text(error: msgspec.ValidationError) -> str:
    """The path first, which msgspec puts last: "Expected `int`, got `str` - at `$.requests[3].in`"."""
    text, _, place = str(error).partition(" - at ")
    return f"{place.strip('`')}: {text}" if place else text
