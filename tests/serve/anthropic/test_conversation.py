"""Bodies to conversations: tools, choices, thinking, shape, prefill."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from samovar.base.errors import InvalidField
from samovar.serve.anthropic.bodies import CountTokensBody, MessagesBody
from samovar.serve.anthropic.conversation_input import conversation_of
from samovar.serve.conversation import Conversation, OutputShape, ToolChoice
from samovar.serve.ignored_tools import IgnoredTools

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
LS = {"name": "ls", "description": "Lists.", "input_schema": SCHEMA}


def conversation(ignored: IgnoredTools | None = None, **fields: Any) -> Conversation:
    fields.setdefault("messages", [{"role": "user", "content": "Hi"}])
    return conversation_of(CountTokensBody(**fields), ignored or IgnoredTools())


def fault(**fields: Any) -> str | None:
    with pytest.raises(InvalidField) as caught:
        conversation(**fields)
    assert caught.value.param is not None and caught.value.message.startswith(caught.value.param)
    return caught.value.param


def test_tools() -> None:
    extras = {"cache_control": {"type": "ephemeral"}, "defer_loading": True, "input_examples": [{}]}
    found = conversation(tools=[LS, {"type": "custom", "name": "x", "input_schema": {}, "strict": True, **extras}])
    ls, x = found.tools
    assert (ls.name, ls.description, ls.parameters, ls.strict, ls.definition) == ("ls", "Lists.", SCHEMA, False, None)
    assert (x.name, x.description, x.parameters, x.strict) == ("x", "", {}, True)


def test_hosted_tools_are_ignored_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    hosted = ["web_search_20250305", "web_fetch_20260309", "code_execution_20250825", "tool_search_tool_bm25_20251119"]
    ignored = IgnoredTools()
    for _ in range(2):
        found = conversation(ignored, tools=[LS, *({"type": kind, "name": "x"} for kind in hosted)])
        assert [tool.name for tool in found.tools] == ["ls"]
    conversation(ignored, tools=[{"type": "mcp_toolset", "mcp_server_name": "s"}])
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == len(hosted) + 1 and "web_search_20250305" in warnings[0].getMessage()


@pytest.mark.parametrize(
    ("kind", "name", "needs"),
    [
        ("bash_20250124", "bash", "restart"),
        ("text_editor_20250728", "str_replace_based_edit_tool", "old_str"),
        ("text_editor_20250124", "str_replace_editor", "old_str"),
        ("memory_20250818", "memory", "new_path"),
    ],
)
def test_tools_of_the_api_that_clients_execute(kind: str, name: str, needs: str) -> None:
    [tool] = conversation(tools=[{"type": kind, "name": name}]).tools
    assert tool.name == name and tool.description and needs in tool.parameters["properties"]


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        (["x"], "tools[0]"),
        ([{"name": "x"}], "tools[0].input_schema"),
        ([{**LS, "name": ""}], "tools[0].name"),
        ([{**LS, "description": 1}], "tools[0].description"),
        ([LS, LS], "tools[1].name"),
        ([{"type": "computer_20250124", "name": "computer"}], "tools[0].type"),
        ([{"type": "bash_2025", "name": "bash"}], "tools[0].type"),
        ([{**LS, "type": 5}], "tools[0].type"),
    ],
)
def test_faulty_tools(tools: list[Any], param: str) -> None:
    assert fault(tools=tools) == param


@pytest.mark.parametrize(
    ("choice", "wanted", "parallel"),
    [
        (None, ToolChoice("auto"), True),
        ({"type": "auto"}, ToolChoice("auto"), True),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice("auto"), False),
        ({"type": "none"}, ToolChoice("none"), True),
        ({"type": "any", "disable_parallel_tool_use": False}, ToolChoice("required"), True),
        ({"type": "tool", "name": "ls", "disable_parallel_tool_use": True}, ToolChoice("required", "ls"), False),
    ],
)
def test_choice(choice: Any, wanted: ToolChoice, parallel: bool) -> None:
    found = conversation(tools=[LS], tool_choice=choice)
    assert (found.tool_choice, found.parallel_calls) == (wanted, parallel)


def test_choices_that_cannot_be() -> None:
    assert fault(tools=[LS], tool_choice={"type": "tool", "name": "rm"}) == "tool_choice"
    assert fault(tools=[LS], tool_choice={"type": "tool"}) == "tool_choice.name"
    assert fault(tools=[LS], tool_choice={"type": "some"}) == "tool_choice.type"
    assert fault(tool_choice={"type": "any"}) == "tool_choice"
    assert conversation(tool_choice={"type": "auto"}).tool_choice == ToolChoice("auto")


@pytest.mark.parametrize(
    ("thinking", "on"),
    [
        (None, None),
        ({"type": "disabled"}, False),
        ({"type": "enabled", "budget_tokens": 2048}, True),
        ({"type": "adaptive", "budget_tokens": 0, "display": "omitted"}, True),
        ({"type": "between_tools"}, True),
    ],
)
def test_thinking(thinking: Any, on: bool | None) -> None:
    assert conversation(thinking=thinking).template_variables.get("enable_thinking") is on
    assert conversation(thinking=thinking).template_variables.get("thinking") is on


def test_template_variables_of_the_request_win() -> None:
    given = {"enable_thinking": False, "tone": "dry"}
    found = conversation(thinking={"type": "adaptive"}, chat_template_kwargs=given)
    assert found.template_variables == {"thinking": True, **given}
    assert fault(thinking={"type": None}) == "thinking.type"


def test_shape() -> None:
    form = {"type": "json_schema", "schema": SCHEMA}
    assert conversation(output_config={"effort": "high"}).shape == OutputShape()
    assert conversation(output_config={"format": None}).shape == OutputShape()
    wanted = OutputShape("json_schema", SCHEMA, strict=True, path="output_config.format.schema")
    assert conversation(output_config={"effort": "low", "format": form}).shape == wanted
    wanted = OutputShape("json_schema", SCHEMA, strict=True, path="output_format.schema")
    assert conversation(output_format=form).shape == wanted
    assert fault(output_config={"format": "json"}) == "output_config.format"
    assert fault(output_config={"format": {"type": "xml"}}) == "output_config.format.type"
    assert fault(output_format={"type": "json_schema", "schema": []}) == "output_format.schema"


def test_prefill() -> None:
    hi = {"role": "user", "content": "Hi"}
    found = conversation(messages=[hi, {"role": "assistant", "content": "The answer is ("}])
    assert found.continue_final_message and not found.add_generation_prompt
    found = conversation(messages=[hi, {"role": "assistant", "content": "x"}, {"role": "system", "content": "y"}])
    assert not found.continue_final_message and found.add_generation_prompt
    call = {"type": "tool_use", "id": "a", "name": "ls", "input": {}}
    turns = [hi, {"role": "assistant", "content": [call]}]
    with pytest.raises(InvalidField, match="tool_result must follow") as caught:
        conversation_of(MessagesBody(messages=turns, max_tokens=5), IgnoredTools())
    assert caught.value.param == "messages[1]"
    # Agents count their conversation piece by piece.
    counted = conversation(messages=turns)
    assert not counted.continue_final_message and not counted.add_generation_prompt
