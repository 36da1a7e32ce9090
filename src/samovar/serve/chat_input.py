"""A chat completions body to the inner conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.bodies import ChatBody, TokenizeBody
from samovar.serve.conversation import Conversation, OutputShape, Tool, ToolChoice
from samovar.serve.json_input import child
from samovar.serve.messages import normalise


def conversation_of(body: ChatBody | TokenizeBody) -> Conversation:
    """Raises InvalidField with the path of the first fault."""
    closing = bool(body.continue_final_message)
    if closing and body.add_generation_prompt:
        raise InvalidField(
            "continue_final_message: cannot be true together with add_generation_prompt.",
            param="continue_final_message",
        )
    opening = not closing if body.add_generation_prompt is None else body.add_generation_prompt
    messages = normalise(body.messages)
    tools = tuple(read_tool(tool, child("tools", at)) for at, tool in enumerate(body.tools or []))
    variables = dict(body.chat_template_kwargs or {})
    if isinstance(body, TokenizeBody):
        return Conversation(
            messages,
            tools,
            template_variables=variables,
            add_generation_prompt=opening,
            continue_final_message=closing,
            add_special_tokens=bool(body.add_special_tokens),
        )
    if body.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", body.reasoning_effort)
    return Conversation(
        messages,
        tools,
        tool_choice=_choice(body.tool_choice, tools),
        parallel_calls=body.parallel_tool_calls is not False,
        shape=_shape(body),
        template_variables=variables,
        add_generation_prompt=opening,
        continue_final_message=closing,
        add_special_tokens=bool(body.add_special_tokens),
    )


def read_tool(tool: Mapping[str, Any], path: str) -> Tool:
    """An OpenAI tool definition: what every part counts on is checked, the rest is the model's to read."""
    kind = _text(tool, "type", path, "a string such as 'function'")
    if kind not in ("function", "custom"):
        # Templates may know more kinds than we do; nothing but their definition is used.
        return Tool(kind, definition=tool)
    inner = tool.get(kind)
    where = child(path, kind)
    if not isinstance(inner, dict):
        raise InvalidField(f"{where}: must be an object; got {shown(inner)}.", param=where)
    name = _text(inner, "name", where, "a string that is not empty")
    description = inner.get("description")
    description = description if isinstance(description, str) else ""
    if kind == "custom":
        return custom_tool(name, description, inner.get("format"), child(where, "format"))
    parameters = inner.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        at = child(where, "parameters")
        raise InvalidField(f"{at}: must be an object (a JSON schema); got {shown(parameters)}.", param=at)
    return Tool(
        name,
        description,
        parameters or {},
        strict=inner.get("strict") is True,
        path=child(where, "parameters"),
        definition=tool,
    )


def custom_tool(name: str, description: str, form: object, path: str) -> Tool:
    """A tool whose input is raw text. `form`: None, {"type": "text"} or {"type": "grammar", ...}, of which only Lark
    grammars bind (in Responses flat, in chat completions under "grammar")."""
    grammar = ""
    if isinstance(form, dict) and form.get("type") == "grammar":
        inner = form.get("grammar") if isinstance(form.get("grammar"), dict) else form
        assert isinstance(inner, dict)
        definition, syntax = inner.get("definition"), inner.get("syntax")
        if not isinstance(definition, str):
            where = child(path, "definition")
            raise InvalidField(f"{where}: must be a string; got {shown(definition)}.", param=where)
        if syntax == "lark":
            grammar = definition
        description = f"{description}\n\nThe input is text of this grammar ({syntax}):\n{definition}".strip()
    elif form is not None and not (isinstance(form, dict) and form.get("type") == "text"):
        raise InvalidField(f"{path}: must be of type 'text' or 'grammar'; got {shown(form)}.", param=path)
    parameters = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    return Tool(name, description, parameters, custom=True, grammar=grammar, path=path)


def _text(holder: Mapping[str, Any], key: str, path: str, wanted: str) -> str:
    value = holder.get(key)
    if not isinstance(value, str) or not value:
        where = child(path, key)
        raise InvalidField(f"{where}: must be {wanted}; got {shown(value)}.", param=where)
    return value


def _choice(value: object, tools: tuple[Tool, ...]) -> ToolChoice:
    if value is None or value == "auto" or value == "none":
        return ToolChoice("none" if value == "none" else "auto")
    if value == "required":
        return required(None, tools, "tool_choice")
    kind = value.get("type") if isinstance(value, dict) else None
    inner = value.get(kind) if isinstance(value, dict) and kind in ("function", "custom") else None
    name = inner.get("name") if isinstance(inner, dict) else None
    if not isinstance(name, str):
        raise InvalidField(
            f"tool_choice: must be 'none', 'auto', 'required' or name a function; got {shown(value)}.",
            param="tool_choice",
        )
    return required(name, tools, "tool_choice")


def required(name: str | None, tools: tuple[Tool, ...], param: str) -> ToolChoice:
    """A call is wanted, of `name` or of any tool. Raises InvalidField when there is no such tool."""
    if not tools:
        raise InvalidField(f"{param}: asks for a call, but the request has no tools.", param=param)
    if name is not None and all(tool.name != name for tool in tools):
        known = ", ".join(tool.name for tool in tools[:20])
        raise InvalidField(f"{param}: names the tool {shown(name)}, which is not among tools: {known}.", param=param)
    return ToolChoice("required", name)


def _shape(body: ChatBody) -> OutputShape:
    form = body.response_format
    if form is None or form.type == "text":
        return OutputShape()
    if form.type == "json_object":
        return OutputShape("json_object")
    if form.type != "json_schema":
        raise InvalidField(
            f"response_format.type: must be 'text', 'json_object' or 'json_schema'; got {shown(form.type)}.",
            param="response_format.type",
        )
    given = form.json_schema
    path = "response_format.json_schema"
    if not isinstance(given, dict):
        raise InvalidField(f"{path}: must be an object with name and schema; got {shown(given)}.", param=path)
    schema = given.get("schema", {})
    path = child(path, "schema")
    if not isinstance(schema, dict):
        raise InvalidField(f"{path}: must be an object (a JSON schema); got {shown(schema)}.", param=path)
    return OutputShape("json_schema", schema, path, given.get("strict") is True)
