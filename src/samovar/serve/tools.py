"""Definitions of tools as clients send them: checked, and a word in the log when the template drops them."""

from __future__ import annotations

import logging
from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.json_input import child
from samovar.text.template import ChatTemplate

log = logging.getLogger(__name__)


class ToolsReader:
    """May be used from several threads: the worst is a second line in the log."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._warned = False

    def read(self, tools: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        """None when there are none. Raises InvalidField with the path of the first fault."""
        if not tools:
            return None
        for at, tool in enumerate(tools):
            _check(tool, child("tools", at))
        if not self._template.reads_tools and not self._warned:
            self._warned = True
            log.warning("the chat template of this checkpoint does not read `tools`: the model does not see them")
        return tools


def _check(tool: dict[str, Any], path: str) -> None:
    """What every template counts on; the rest of a definition is the model's to read."""
    kind = tool.get("type")
    if not isinstance(kind, str) or not kind:
        where = child(path, "type")
        raise InvalidField(f"{where}: must be a string such as 'function'; got {shown(kind)}.", param=where)
    if kind != "function":
        return
    function = tool.get("function")
    if not isinstance(function, dict):
        where = child(path, "function")
        raise InvalidField(f"{where}: must be an object; got {shown(function)}.", param=where)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        where = child(path, "function.name")
        raise InvalidField(f"{where}: must be a string that is not empty; got {shown(name)}.", param=where)
