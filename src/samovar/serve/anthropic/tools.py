"""Definitions and choice of tools as Messages clients send them, to the inner form's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import re
from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.anthropic.client_tools import client_tool
from samovar.serve.conversation import Tool, ToolChoice
from samovar.serve.fields import name_in, schema_in, string
from samovar.serve.ignored_tools import IgnoredTools
from samovar.serve.json_input import child
from samovar.serve.tools import name_taken, required

_HOSTED = re.compile(r"(web_search|web_fetch|code_execution|tool_search_tool|advisor|mcp_toolset)\w*")
"""Types of tools that a server executes, of any date."""


def read_tools(tools: Sequence[object] | None, ignored: IgnoredTools) -> tuple[Tool, ...]:
    """In the client's order. Raises InvalidField with the path of the first fault."""
    found: dict[str, Tool] = {}
    for at, given in enumerate(tools or ()):
        path = child("tools", at)
        if not isinstance(given, dict):
            raise InvalidField(f"{path}: must be an object; got {shown(given)}.", param=path)
        tool = _tool(given, path, ignored)
        if tool is None:
            continue
        if tool.name in found:
            raise name_taken(tool.name, path)
        found[tool.name] = tool
    return tuple(found.values())


def read_choice(choice: Mapping[str, Any] | None, tools: tuple[Tool, ...]) -> tuple[ToolChoice, bool]:
    """The choice, and whether an answer may hold several calls."""
    if choice is None:
        return ToolChoice(), True
    parallel = choice.get("disable_parallel_tool_use") is not True
    match choice.get("type"):
        case "auto":
            return ToolChoice("auto"), parallel
        case "none":
            return ToolChoice("none"), parallel
        case "any":
            return required(None, tools, "tool_choice"), parallel
        case "tool":
            return required(name_in(choice, "name", "tool_choice"), tools, "tool_choice"), parallel
        case kind:
            raise InvalidField(
                f"tool_choice.type: must be 'auto', 'any', 'tool' or 'none'; got {shown(kind)}.",
                param="tool_choice.type",
            )


def _tool(given: Mapping[str, Any], path: str, ignored: IgnoredTools) -> Tool | None:
    """None for one that is ignored."""
    kind = given.get("type")
    if kind is None or kind == "custom":
        return _custom(given, path)
    if isinstance(kind, str):
        if _HOSTED.fullmatch(kind):
            ignored.note(kind)
            return None
        tool = client_tool(kind, name_in(given, "name", path))
        if tool is not None:
            return tool
    where = child(path, "type")
    raise InvalidField(f"{where}: tools of type {shown(kind)} are not supported.", param=where)


def _custom(given: Mapping[str, Any], path: str) -> Tool:
    name = name_in(given, "name", path)
    description = "" if given.get("description") is None else string(given, "description", path)
    schema = schema_in(given, "input_schema", path)
    return Tool(name, description, schema, strict=given.get("strict") is True, path=child(path, "input_schema"))
