"""Tools and the choice among them, as far as every API means the same."""

from __future__ import annotations

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.conversation import Tool, ToolChoice
from samovar.serve.fields import string
from samovar.serve.json_input import child

MAX_TOOLS = 1024
"""Of one request."""


def custom_tool(name: str, description: str, form: object, path: str) -> Tool:
    """A tool whose input is raw text. `form`: None, {"type": "text"} or {"type": "grammar", ...}, of which only Lark
    grammars bind (in Responses flat, in chat completions under "grammar")."""
    grammar = ""
    if isinstance(form, dict) and form.get("type") == "grammar":
        inner = form.get("grammar")
        holder = inner if isinstance(inner, dict) else form
        definition, syntax = string(holder, "definition", path), holder.get("syntax")
        if syntax == "lark":
            grammar = definition
        description = f"{description}\n\nThe input is text of this grammar ({syntax}):\n{definition}".strip()
    elif form is not None and not (isinstance(form, dict) and form.get("type") == "text"):
        raise InvalidField(f"{path}: must be of type 'text' or 'grammar'; got {shown(form)}.", param=path)
    parameters = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    return Tool(name, description, parameters, custom=True, grammar=grammar, path=path)


def required(name: str | None, tools: tuple[Tool, ...], param: str) -> ToolChoice:
    """A call is wanted, of `name` or of any tool. Raises InvalidField when there is no such tool."""
    if not tools:
        raise InvalidField(f"{param}: asks for a call, but the request has no tools.", param=param)
    if name is not None and all(tool.name != name for tool in tools):
        known = ", ".join(tool.name for tool in tools[:20])
        raise InvalidField(f"{param}: names the tool {shown(name)}, which is not among tools: {known}.", param=param)
    return ToolChoice("required", name)


def name_taken(name: str, path: str) -> InvalidField:
    where = child(path, "name")
    return InvalidField(f"{where}: {shown(name)} is the name of an earlier tool, too.", param=where)
