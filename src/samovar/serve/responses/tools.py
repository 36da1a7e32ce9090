"""Tools as Responses clients define them, to the inner form's, and the way back from the names that the model uses.

A namespace (one per MCP server) nests functions; the model sees one flat name for each, and a call that comes back
names both again. Tools that only a server can execute are not shown to the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.conversation import Tool
from samovar.serve.fields import name_in, schema_in, text_or_nothing
from samovar.serve.ignored_tools import IgnoredTools
from samovar.serve.json_input import child
from samovar.serve.tools import MAX_TOOLS, custom_tool, name_taken


@dataclass(frozen=True, slots=True)
class OuterName:
    """What a client calls a tool."""

    name: str
    namespace: str | None = None
    custom: bool = False


@dataclass(frozen=True, slots=True)
class Toolbox:
    tools: tuple[Tool, ...] = ()
    names: Mapping[str, OuterName] = field(default_factory=dict)
    """By what the model calls the tool."""
    inner_names: Mapping[tuple[str, str | None], str] = field(default_factory=dict)
    """The other way: by name and namespace."""
    ignored: tuple[str, ...] = ()
    """Types of the tools that were left out, in order."""

    def inner(self, name: str, namespace: str | None) -> str:
        """Of any tool of the past, whether it is still offered or not."""
        return self.inner_names.get((name, namespace)) or flat_name(name, namespace)


def flat_name(name: str, namespace: str | None) -> str:
    """MCP servers' namespaces often end with the separator already."""
    if not namespace:
        return name
    return f"{namespace}{'' if namespace.endswith('__') else '__'}{name}"


def read_tools(given: Iterable[tuple[str, object]], ignored: IgnoredTools) -> Toolbox:
    """`given`: definitions with their paths. Raises InvalidField with the path of the first fault."""
    reader = _Reader(ignored)
    for path, tool in given:
        reader.add(tool, path)
    return Toolbox(tuple(reader.tools), reader.names, reader.inner_names, tuple(reader.left_out))


class _Reader:
    def __init__(self, ignored: IgnoredTools) -> None:
        self._ignored = ignored
        self.tools: list[Tool] = []
        self.names: dict[str, OuterName] = {}
        self.inner_names: dict[tuple[str, str | None], str] = {}
        self.left_out: list[str] = []
        self._suffixes: dict[str, int] = {}
        """By a flat name that several tools would have, how many underscores the last of them has behind it."""

    def add(self, tool: object, path: str) -> None:
        if not isinstance(tool, dict):
            raise InvalidField(f"{path}: must be an object; got {shown(tool)}.", param=path)
        kind = name_in(tool, "type", path)
        if kind == "namespace":
            self._namespace(tool, path)
        elif kind in ("function", "custom"):
            self._callable(tool, path, None, "")
        else:
            self._ignored.note(kind)
            self.left_out.append(kind)

    def _namespace(self, tool: Mapping[str, Any], path: str) -> None:
        namespace = name_in(tool, "name", path)
        members, where = tool.get("tools"), child(path, "tools")
        if not isinstance(members, list):
            raise InvalidField(f"{where}: must be an array of tools; got {shown(members)}.", param=where)
        about = text_or_nothing(tool.get("description"))
        for at, member in enumerate(members):
            inside = child(where, at)
            if not isinstance(member, dict) or member.get("type") not in ("function", "custom"):
                raise InvalidField(
                    f"{inside}: must be a tool of type 'function' or 'custom'; got {shown(member)}.", param=inside
                )
            # What a namespace says of all its tools has no place of its own in a prompt: the first one says it.
            self._callable(member, inside, namespace, about if at == 0 else "")

    def _callable(self, tool: Mapping[str, Any], path: str, namespace: str | None, about: str) -> None:
        name = name_in(tool, "name", path)
        if namespace is None and name in self.names:
            raise name_taken(name, path)
        inner = self._free(flat_name(name, namespace))
        description = "\n\n".join(filter(None, (about, text_or_nothing(tool.get("description")))))
        custom = tool["type"] == "custom"
        if custom:
            made = custom_tool(inner, description, tool.get("format"), child(path, "format"))
        else:
            made = _function(inner, description, tool, path)
        self.tools.append(made)
        self.names[inner] = OuterName(name, namespace, custom)
        self.inner_names.setdefault((name, namespace), inner)
        if len(self.tools) > MAX_TOOLS:
            raise InvalidField(f"{path}: is more than {MAX_TOOLS} tools, namespaces' own among them.", param=path)

    def _free(self, flat: str) -> str:
        inner = flat
        while inner in self.names:
            self._suffixes[flat] = self._suffixes.get(flat, 0) + 1
            inner = flat + "_" * self._suffixes[flat]
        return inner


def _function(name: str, description: str, tool: Mapping[str, Any], path: str) -> Tool:
    parameters = schema_in(tool, "parameters", path, {})
    return Tool(name, description, parameters, strict=tool.get("strict") is True, path=child(path, "parameters"))
