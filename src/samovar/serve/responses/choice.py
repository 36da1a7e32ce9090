"""`tool_choice` of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.conversation import Tool, ToolChoice
from samovar.serve.fields import name_in
from samovar.serve.json_input import child
from samovar.serve.responses.tools import Toolbox
from samovar.serve.tools import required

PARAM = "tool_choice"


@dataclass(frozen=True, slots=True)
class Choice:
    choice: ToolChoice
    callable: tuple[Tool, ...]
    """Those that may be called: all, unless `allowed_tools` demands a call of some. The prompt shows all of them."""


def read_choice(value: object, toolbox: Toolbox) -> Choice:
    """Raises InvalidField."""
    tools = toolbox.tools
    if value is None or value == "auto" or value == "none":
        return Choice(ToolChoice("none" if value == "none" else "auto"), tools)
    if value == "required":
        return Choice(required(None, tools, PARAM), tools)
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(value, dict) and kind in ("function", "custom"):
        return Choice(required(_inner(value, PARAM, toolbox), tools, PARAM), tools)
    if isinstance(value, dict) and kind == "allowed_tools":
        return _allowed(value, toolbox)
    raise InvalidField(
        f"{PARAM}: must be 'none', 'auto', 'required', name a function or custom tool, or be of type 'allowed_tools'; "
        f"got {shown(value)}.",
        param=PARAM,
    )


def _allowed(value: Mapping[str, Any], toolbox: Toolbox) -> Choice:
    """With mode "auto" the model may call whatever it sees, for no grammar holds it; where nothing is allowed that it
    could call, calls are not read."""
    mode, listed = value.get("mode"), value.get("tools")
    if mode not in ("auto", "required"):
        where = child(PARAM, "mode")
        raise InvalidField(f"{where}: must be 'auto' or 'required'; got {shown(mode)}.", param=where)
    where = child(PARAM, "tools")
    if not isinstance(listed, list):
        raise InvalidField(f"{where}: must be an array of tools; got {shown(listed)}.", param=where)
    allowed: set[str] = set()
    for at, tool in enumerate(listed):
        if not isinstance(tool, dict):
            inside = child(where, at)
            raise InvalidField(f"{inside}: must be an object with type and name; got {shown(tool)}.", param=inside)
        if tool.get("type") in ("function", "custom"):
            allowed.add(_inner(tool, child(where, at), toolbox))
    left = tuple(tool for tool in toolbox.tools if tool.name in allowed)
    if mode == "auto":
        return Choice(ToolChoice("auto" if left else "none"), toolbox.tools)
    return Choice(required(left[0].name if len(left) == 1 else None, left, PARAM), left)


def _inner(value: Mapping[str, Any], path: str, toolbox: Toolbox) -> str:
    namespace = value.get("namespace")
    return toolbox.inner(name_in(value, "name", path), namespace if isinstance(namespace, str) else None)
