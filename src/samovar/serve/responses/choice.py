"""`tool_choice` of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.chat_input import required
from samovar.serve.conversation import ToolChoice
from samovar.serve.json_input import child
from samovar.serve.responses.content import name_in
from samovar.serve.responses.tools import Toolbox

PARAM = "tool_choice"


def read_choice(value: object, toolbox: Toolbox) -> tuple[ToolChoice, Toolbox]:
    """The choice, and the tools it leaves: `allowed_tools` hides the others. Raises InvalidField."""
    if value is None or value == "auto" or value == "none":
        return ToolChoice("none" if value == "none" else "auto"), toolbox
    if value == "required":
        return required(None, toolbox.tools, PARAM), toolbox
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(value, dict) and kind in ("function", "custom"):
        return required(_inner(value, PARAM, toolbox), toolbox.tools, PARAM), toolbox
    if isinstance(value, dict) and kind == "allowed_tools":
        return _allowed(value, toolbox)
    raise InvalidField(
        f"{PARAM}: must be 'none', 'auto', 'required', name a function or custom tool, or be of type 'allowed_tools'; "
        f"got {shown(value)}.",
        param=PARAM,
    )


def _allowed(value: Mapping[str, Any], toolbox: Toolbox) -> tuple[ToolChoice, Toolbox]:
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
    left = toolbox.only(allowed)
    if mode == "auto":
        return ToolChoice("auto"), left
    return required(left.tools[0].name if len(left.tools) == 1 else None, left.tools, PARAM), left


def _inner(value: Mapping[str, Any], path: str, toolbox: Toolbox) -> str:
    namespace = value.get("namespace")
    return toolbox.inner(name_in(value, "name", path), namespace if isinstance(namespace, str) else None)
