"""Items to messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from samovar.base.errors import InvalidField
from samovar.serve.ignored_tools import IgnoredTools
from samovar.serve.responses.items import SUMMARY_HEAD, inner_messages
from samovar.serve.responses.sealed import seal
from samovar.serve.responses.tools import Toolbox, read_tools
from tests.serve.responses.conftest import NAMESPACE


def read(*items: Any, toolbox: Toolbox | None = None) -> list[dict[str, Any]]:
    return inner_messages([(f"input[{at}]", item) for at, item in enumerate(items)], toolbox or Toolbox())


def call(id: str, name: str, arguments: str = "{}", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments, **fields}


def result(id: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": output}


def test_one_turn_of_the_model_is_one_message() -> None:
    messages = read(
        {"role": "user", "content": "List it."},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Look."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I will "}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "look."}]},
        call("c1", "ls", '{"path": "b", "all": 1}'),
        call("c2", "cat"),
        result("c1", "x"),
    )
    assert messages == [
        {"role": "user", "content": "List it."},
        {
            "role": "assistant",
            "content": "I will look.",
            "reasoning_content": "Look.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "b", "all": 1}'}},
                {"id": "c2", "type": "function", "function": {"name": "cat", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "x", "name": "ls"},
    ]


def test_results_stand_in_the_order_of_their_calls() -> None:
    messages = read(call("c1", "a"), call("c2", "b"), result("c2", "2"), result("lost", "?"), result("c1", "1"))
    assert [message.get("tool_call_id") for message in messages[1:]] == ["c1", "c2", "lost"]


def test_results_between_calls_part_the_turns() -> None:
    messages = read(call("c1", "a"), result("c1", "1"), call("c2", "b"), result("c2", "2"))
    assert [message["role"] for message in messages] == ["assistant", "tool", "assistant", "tool"]


def test_system_messages_stay_where_they_are() -> None:
    messages = read(
        {"role": "developer", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": "9 left"},
    )
    assert [(m["role"], m["content"]) for m in messages] == [("system", "a\nb"), ("user", "Hi"), ("system", "9 left")]


@pytest.mark.parametrize("output", ["x\ny", [{"type": "input_text", "text": "x"}, {"type": "input_text", "text": "y"}]])
def test_output_as_text_or_parts(output: Any) -> None:
    assert read(call("c", "a"), result("c", output))[1]["content"] == "x\ny"


def test_output_of_a_form_of_its_own() -> None:
    output = [{"stdout": "é", "outcome": {"exit_code": 0}}]
    item = {"type": "shell_call_output", "call_id": "c", "output": output}
    assert json.loads(read(call("c", "a"), item)[1]["content"]) == output


def test_custom_call_is_what_the_model_wrote() -> None:
    raw = '*** Begin\n+ "ü"\\n'
    item = {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": raw}
    done = {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"}
    first, second = read(item, done)
    assert json.loads(first["tool_calls"][0]["function"]["arguments"]) == {"input": raw}
    assert second == {"role": "tool", "tool_call_id": "c", "content": "ok", "name": "apply_patch"}


def test_namespaced_call_has_the_name_the_model_knows() -> None:
    toolbox = read_tools([("tools[0]", NAMESPACE)], IgnoredTools())
    known, gone = read(call("c", "log", namespace="mcp__git"), call("d", "x", namespace="old__"), toolbox=toolbox)[0][
        "tool_calls"
    ]
    assert known["function"]["name"] == toolbox.tools[0].name == "mcp__git__log"
    assert gone["function"]["name"] == "old__x"


@pytest.mark.parametrize(
    ("item", "thought"),
    [
        (
            {"encrypted_content": seal("reasoning", "Aha\n"), "summary": [{"type": "summary_text", "text": "s"}]},
            "Aha\n",
        ),
        ({"encrypted_content": "gAAAA", "summary": [], "content": [{"type": "reasoning_text", "text": "c"}]}, "c"),
        ({"encrypted_content": "gAAAA", "summary": [{"type": "summary_text", "text": "s"}], "content": None}, "s"),
        ({"encrypted_content": "gAAAA", "summary": []}, None),
        ({"encrypted_content": seal("summary", "x"), "summary": []}, None),
    ],
)
def test_reasoning(item: dict[str, Any], thought: str | None) -> None:
    (message,) = read({"type": "reasoning", "id": "rs_1", **item})
    assert message.get("reasoning_content") == thought


@pytest.mark.parametrize("kind", ["compaction", "compaction_summary", "context_compaction"])
def test_compaction_of_ours(kind: str) -> None:
    assert read({"type": kind, "encrypted_content": seal("summary", "So far.")}) == [
        {"role": "user", "content": f"{SUMMARY_HEAD}So far."}
    ]


def test_calls_of_other_types_are_shown() -> None:
    action = {"type": "exec", "command": ["ls"]}
    first, second = read(
        {"type": "local_shell_call", "id": "l1", "call_id": "c", "action": action, "status": "completed"},
        {"type": "local_shell_call_output", "id": "c", "output": "x"},
    )
    assert first["tool_calls"][0]["function"] == {"name": "local_shell", "arguments": json.dumps(action)}
    assert (second["tool_call_id"], second["content"]) == ("c", "x")


def test_web_searches_of_another_server_say_nothing() -> None:
    assert read({"role": "user", "content": "a"}, {"type": "web_search_call", "id": "w", "status": "completed"}) == [
        {"role": "user", "content": "a"}
    ]


@pytest.mark.parametrize(
    ("item", "param"),
    [
        (7, "input[0]"),
        ({"type": "mcp_call", "id": "m"}, "input[0].type"),
        ({"type": "made_up"}, "input[0].type"),
        ({"type": 7}, "input[0].type"),
        ({"role": "tool", "content": "x"}, "input[0].role"),
        ({"role": "user", "content": 7}, "input[0].content"),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}, "input[0].content[0].type"),
        ({"role": "user", "content": [{"type": "input_file"}]}, "input[0].content[0].type"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0].text"),
        ({"type": "function_call", "call_id": "c", "name": "x", "arguments": {}}, "input[0].arguments"),
        ({"type": "function_call", "call_id": "c", "arguments": "{}"}, "input[0].name"),
        ({"type": "function_call", "name": "c", "arguments": "{}"}, "input[0].call_id"),
        (
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image"}]},
            "input[0].output[0].type",
        ),
        ({"type": "custom_tool_call", "call_id": "c", "name": "x"}, "input[0].input"),
        ({"type": "compaction", "encrypted_content": "gAAAA"}, "input[0].encrypted_content"),
    ],
)
def test_faults_are_named(item: Any, param: str) -> None:
    with pytest.raises(InvalidField) as caught:
        read(item)
    assert caught.value.param == param and caught.value.message.startswith(param)
