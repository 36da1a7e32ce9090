"""`response_format` under the names and in the forms that the APIs give it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.conversation import OutputShape
from samovar.serve.fields import schema_in
from samovar.serve.json_input import child

ALL = ("text", "json_object", "json_schema")


def read_shape(
    form: object, path: str, *, inside: str = "", kinds: Sequence[str] = ALL, strict: bool = False
) -> OutputShape:
    """`inside`: the member that holds schema and strict, where the schema may be left out; "": the form itself holds
    them. `strict`: always. Raises InvalidField with the path of the first fault."""
    if form is None:
        return OutputShape()
    if not isinstance(form, Mapping):
        raise InvalidField(f"{path}: must be an object; got {shown(form)}.", param=path)
    kind = form.get("type")
    if kind not in kinds:
        where, known = (
            child(path, "type"),
            " or ".join(filter(None, (", ".join(map(repr, kinds[:-1])), repr(kinds[-1])))),
        )
        raise InvalidField(f"{where}: must be {known}; got {shown(kind)}.", param=where)
    if kind == "text":
        return OutputShape()
    if kind == "json_object":
        return OutputShape("json_object", path=path)
    holder: Mapping[str, Any] = form
    if inside:
        path = child(path, inside)
        given = form.get(inside)
        if not isinstance(given, Mapping):
            raise InvalidField(f"{path}: must be an object with name and schema; got {shown(given)}.", param=path)
        holder = given
    schema = schema_in(holder, "schema", path, {} if inside else None)
    return OutputShape("json_schema", schema, child(path, "schema"), strict or holder.get("strict") is True)
