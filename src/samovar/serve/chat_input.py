"""A chat completions body to the inner conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.bodies import ChatBody, ResponseFormat, TokenizeBody
from samovar.serve.conversation import Conversation, OutputShape, Tool, ToolChoice
from samovar.serve.fields import name_in, schema_in, text_or_nothing
from samovar.serve.json_input import child
from samovar.serve.messages import normalise
from samovar.serve.output_shape import read_shape
from samovar.serve.tools import required


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
    shown_tools = tuple(read_tool(tool, child("tools", at)) for at, tool in enumerate(body.tools or []))
    variables = dict(body.chat_template_kwargs or {})
    if isinstance(body, TokenizeBody):
        return Conversation(
            messages,
            shown_tools,
            template_variables=variables,
            add_generation_prompt=opening,
            continue_final_message=closing,
            add_special_tokens=bool(body.add_special_tokens),
        )
    if body.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", body.reasoning_effort)
    tools, choice = _choice(body.tool_choice, shown_tools)
    return Conversation(
        messages,
        tools,
        tool_choice=choice,
        shown_tools=shown_tools,
        parallel_calls=body.parallel_tool_calls is not False,
        shape=_shape(body.response_format),
        template_variables=variables,
        add_generation_prompt=opening,
        continue_final_message=closing,
        add_special_tokens=bool(body.add_special_tokens),
    )


def read_tool(tool: Mapping[str, Any], path: str) -> Tool:
    """An OpenAI tool definition: what every part counts on is checked, the rest is the model's to read."""
    kind = name_in(tool, "type", path)
    tool = {key: value for key, value in tool.items() if key != "cache_control"}  # it is not for the model
    if kind == "custom":
        where = child(path, "type")
        raise InvalidField(
            f"{where}: custom tools are served on /v1/responses; here tools are of type 'function'.", param=where
        )
    if kind != "function":
        # Templates may know more kinds than we do; nothing but their definition is used.
        return Tool(kind, definition=tool)
    inner = tool.get(kind)
    where = child(path, kind)
    if not isinstance(inner, dict):
        raise InvalidField(f"{where}: must be an object; got {shown(inner)}.", param=where)
    name = name_in(inner, "name", where)
    return Tool(
        name,
        text_or_nothing(inner.get("description")),
        schema_in(inner, "parameters", where, {}),
        strict=inner.get("strict") is True,
        path=child(where, "parameters"),
        definition=tool,
    )


def _choice(value: object, tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], ToolChoice]:
    """What may be called, and whether it must be."""
    if value is None or value == "auto" or value == "none":
        return tools, ToolChoice("none" if value == "none" else "auto")
    if value == "required":
        return tools, required(None, tools, "tool_choice")
    if isinstance(value, dict) and value.get("type") == "allowed_tools":
        return _allowed(value.get("allowed_tools"), tools)
    return tools, required(_named(value, "tool_choice"), tools, "tool_choice")


def _allowed(value: object, tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], ToolChoice]:
    """With mode "auto" the model may call whatever it sees: no grammar holds it."""
    path = "tool_choice.allowed_tools"
    mode, listed = (value.get("mode"), value.get("tools")) if isinstance(value, dict) else (None, None)
    if mode not in ("auto", "required") or not isinstance(listed, list):
        raise InvalidField(
            f"{path}: must have a mode, 'auto' or 'required', and an array of tools; got {shown(value)}.", param=path
        )
    names = {_named(tool, child(child(path, "tools"), at)) for at, tool in enumerate(listed)}
    left = tuple(tool for tool in tools if tool.name in names)
    if mode == "auto":
        return tools, ToolChoice("auto" if left else "none")
    return left, required(left[0].name if len(left) == 1 else None, left, "tool_choice")


def _named(value: object, path: str) -> str:
    inner = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    name = inner.get("name") if isinstance(inner, dict) else None
    if not isinstance(name, str):
        raise InvalidField(
            f"{path}: must be 'none', 'auto', 'required', name a function or list allowed_tools; got {shown(value)}."
            if path == "tool_choice"
            else f"{path}: must name a function; got {shown(value)}.",
            param=path,
        )
    return name


def _shape(form: ResponseFormat | None) -> OutputShape:
    given = None if form is None else {"type": form.type, "json_schema": form.json_schema}
    return read_shape(given, "response_format", inside="json_schema")
