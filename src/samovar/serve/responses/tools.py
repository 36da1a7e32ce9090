"""Tools as Responses clients define them, to the inner form's, and the way back from the names that the model uses.

A namespace (one per MCP server) nests functions; the model sees one flat name for each, and a call that comes back
names both again. Tools that only a server can execute are not shown to the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
import logging
from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.chat_input import custom_tool
from samovar.serve.conversation import Tool
from samovar.serve.json_input import child
from samovar.serve.responses.content import name_in

log = logging.getLogger(__name__)

MAX_LOGGED = 100


class IgnoredTools:
    """How often tools were left out of a prompt, by type. The first of a type is worth a line in the log. May be used
    from several threads: the worst is a second line."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def note(self, kind: str) -> None:
        if kind not in self.counts:
            if len(self.counts) >= MAX_LOGGED:
                return
            log.warning("tools of type %s are executed by a server, but not by this one: ignored", shown(kind))
        self.counts[kind] += 1


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
    ignored: tuple[str, ...] = ()
    """Types of the tools that were left out, in order."""

    def outer(self, name: str) -> OuterName:
        """Of any name: the model may have made it up."""
        return self.names.get(name, OuterName(name))

    def inner(self, name: str, namespace: str | None) -> str:
        """Of any tool of the past, whether it is still offered or not."""
        for inner, outer in self.names.items():
            if outer.name == name and outer.namespace == namespace:
                return inner
        return flat_name(name, namespace)

    def only(self, inner_names: Collection[str]) -> Toolbox:
        tools = tuple(tool for tool in self.tools if tool.name in inner_names)
        return Toolbox(tools, self.names, self.ignored)


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
    return Toolbox(tuple(reader.tools), reader.names, tuple(reader.left_out))


class _Reader:
    def __init__(self, ignored: IgnoredTools) -> None:
        self._ignored = ignored
        self.tools: list[Tool] = []
        self.names: dict[str, OuterName] = {}
        self.left_out: list[str] = []

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
        about = _text(tool.get("description"))
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
        inner = flat_name(name, namespace)
        if inner in self.names:
            if namespace is None:
                where = child(path, "name")
                raise InvalidField(f"{where}: {shown(name)} is the name of an earlier tool, too.", param=where)
            while inner in self.names:
                inner += "_"
        description = "\n\n".join(filter(None, (about, _text(tool.get("description")))))
        custom = tool["type"] == "custom"
        if custom:
            made = custom_tool(inner, description, tool.get("format"), child(path, "format"))
        else:
            made = _function(inner, description, tool, path)
        self.tools.append(made)
        self.names[inner] = OuterName(name, namespace, custom)


def _function(name: str, description: str, tool: Mapping[str, Any], path: str) -> Tool:
    parameters = tool.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        where = child(path, "parameters")
        raise InvalidField(f"{where}: must be an object (a JSON schema); got {shown(parameters)}.", param=where)
    strict = tool.get("strict") is True
    return Tool(name, description, parameters or {}, strict=strict, path=child(path, "parameters"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
