"""Tools for models whose chat template knows none: definitions and the way to call (Hermes) go into the system message,
calls and results into the text of messages.

A call is spelt in one way only, the one asked for, so that the history reads as the model wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import json
from typing import Any

from samovar.text.formats.hermes import BEGIN, END
from samovar.text.messages import Message, flatten_content

_INTRODUCTION = """\
# Tools

You can call the tools defined here, one definition per line:
<tools>
"""
_INSTRUCTIONS = f"""
</tools>

To call a tool, write its name and arguments as JSON between {BEGIN} tags, and nothing after the last call:
{BEGIN}
{{"name": "tool-name", "arguments": {{"argument": "value"}}}}
{END}
You may make several calls, each between tags of its own. The results are given to you between <tool_response> tags."""


def with_tools(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    """`messages` (chat completions' shape, not changed) for a template that neither reads tools nor shows calls.

    Tools are written in the order given; without any, only past calls (of functions) and results are rendered. Contents
    of the messages that change become strings. Raises InvalidField for content that is no text, as `flatten_content`.
    """
    out: list[Message] = []
    results: list[str] = []
    for at, message in enumerate(messages):
        path = f"messages[{at}].content"
        if message.get("role") == "tool":
            results.append(_response(flatten_content(message.get("content"), path)))
            continue
        if results:
            out.append({"role": "user", "content": "\n".join(results)})
            results = []
        calls = message.get("tool_calls")
        if calls or message.get("content") is None:
            text = flatten_content(message.get("content"), path)
            rest = {key: value for key, value in message.items() if key != "tool_calls"}
            out.append({**rest, "content": "\n".join([*filter(None, [text]), *map(_call, calls or ())])})
        else:
            out.append(message)
    if results:
        out.append({"role": "user", "content": "\n".join(results)})
    return _introduced(out, tools) if tools else out


def _introduced(messages: list[Message], tools: Iterable[Mapping[str, Any]]) -> list[Message]:
    definitions = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    section = _INTRODUCTION + definitions + _INSTRUCTIONS
    if not messages or messages[0].get("role") != "system":
        return [{"role": "system", "content": section}, *messages]
    text = flatten_content(messages[0].get("content"), "messages[0].content")
    return [{**messages[0], "content": f"{text}\n\n{section}" if text else section}, *messages[1:]]


def _call(call: Mapping[str, Any]) -> str:
    name = json.dumps(call["function"]["name"], ensure_ascii=False)
    return f'{BEGIN}\n{{"name": {name}, "arguments": {_arguments(call["function"].get("arguments"))}}}\n{END}'


def _arguments(arguments: Any) -> str:
    """As the model wrote them, even if that is no JSON."""
    if isinstance(arguments, str):
        return arguments if arguments.strip() else "{}"
    return json.dumps({} if arguments is None else arguments, ensure_ascii=False)


def _response(text: str) -> str:
    return f"<tool_response>\n{text}\n</tool_response>"
