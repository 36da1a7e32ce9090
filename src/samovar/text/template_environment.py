"""The Jinja environment chat templates are written for: transformers' conventions in an immutable sandbox."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
import json
import re
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from samovar.text.marks import MARK

_NOT_ASCII = re.compile(rf"[^\x00-\x7e{MARK}]")


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks what a model wrote, for training; here it is only its content."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def build_environment(clock: Callable[[], datetime] | None) -> ImmutableSandboxedEnvironment:
    """`clock` is what `strftime_now` reads; without one it is undefined, and templates that ask whether it is defined
    fall back to a date of their own."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    if clock is not None:
        environment.globals["strftime_now"] = lambda pattern: clock().strftime(pattern)
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter sorts keys and escapes HTML; models were trained on neither."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    # A mark stays one, which json would escape as well.
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text) if ensure_ascii else text


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
