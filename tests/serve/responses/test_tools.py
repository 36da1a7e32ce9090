"""Tools, their names both ways, and the choice among them."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from samovar.base.errors import InvalidField
from samovar.serve.conversation import ToolChoice
from samovar.serve.ignored_tools import MAX_KINDS, IgnoredTools
from samovar.serve.responses.choice import read_choice
from samovar.serve.responses.tools import OuterName, Toolbox, flat_name, read_tools
from samovar.serve.tools import MAX_TOOLS
from tests.serve.responses.conftest import CUSTOM, FUNCTION, HOSTED, NAMESPACE, TOOLS


def box(*tools: Any, ignored: IgnoredTools | None = None) -> Toolbox:
    return read_tools([(f"tools[{at}]", tool) for at, tool in enumerate(tools)], ignored or IgnoredTools())


def test_all_kinds(caplog: pytest.LogCaptureFixture) -> None:
    ignored = IgnoredTools()
    with caplog.at_level(logging.WARNING):
        found = [box(*TOOLS, ignored=ignored) for _ in range(3)][-1]
    assert [tool.name for tool in found.tools] == ["ls", "apply_patch", "mcp__git__log", "mcp__git__diff"]
    assert found.ignored == ("web_search",)
    assert len(caplog.records) == 1
    patch = found.tools[1]
    assert patch.custom and patch.grammar == "start: /.+/" and "start: /.+/" in patch.description
    assert found.tools[2].description == "Git." and found.tools[3].description == "Differences."
    assert found.names["mcp__git__log"] == OuterName("log", "mcp__git")
    assert found.names["apply_patch"] == OuterName("apply_patch", custom=True)


def test_function_is_shown_in_the_form_of_chat() -> None:
    (tool,) = box(FUNCTION).tools
    assert tool.for_template() == {
        "type": "function",
        "function": {"name": "ls", "description": "", "parameters": FUNCTION["parameters"]},
    }


def test_flat_names() -> None:
    assert flat_name("a", None) == "a" and flat_name("a", "mcp__x__") == "mcp__x__a" and flat_name("a", "x") == "x__a"


def test_flat_names_are_unique() -> None:
    found = box({"type": "function", "name": "mcp__git__log"}, NAMESPACE)
    assert [tool.name for tool in found.tools] == ["mcp__git__log", "mcp__git__log_", "mcp__git__diff"]
    assert found.names["mcp__git__log_"] == OuterName("log", "mcp__git")
    assert found.inner("log", "mcp__git") == "mcp__git__log_"


def test_names_made_up_for_ignored_tools_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    ignored = IgnoredTools()
    with caplog.at_level(logging.WARNING):
        box(*({"type": f"web_{at}" * 99} for at in range(5 * MAX_KINDS)), ignored=ignored)
    assert len(caplog.records) == MAX_KINDS and all(len(record.getMessage()) < 300 for record in caplog.records)


def test_past_calls_find_their_tools_at_once() -> None:
    found = box({"type": "namespace", "name": "x", "tools": [{**FUNCTION, "name": f"t{at}"} for at in range(1000)]})
    begun = time.process_time()
    for _ in range(100):
        for at in range(1000):
            assert found.inner(f"t{at}", "x") == f"x__t{at}"
    assert time.process_time() - begun < 2, "to look through all tools for each call would take several"


def test_tools_of_one_name_in_a_namespace() -> None:
    same = [{**FUNCTION, "name": "ls"}] * MAX_TOOLS
    begun = time.process_time()
    found = box({"type": "namespace", "name": "x", "tools": same})
    assert time.process_time() - begun < 2
    assert len({tool.name for tool in found.tools}) == MAX_TOOLS and found.inner("ls", "x") == "x__ls"
    with pytest.raises(InvalidField, match=rf"^tools\[0\]\.tools\[{MAX_TOOLS}\]: is more than {MAX_TOOLS} tools"):
        box({"type": "namespace", "name": "x", "tools": [*same, FUNCTION]})


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        (7, "tools[0]"),
        ({"name": "x"}, "tools[0].type"),
        ({"type": "function"}, "tools[0].name"),
        ({"type": "function", "name": "x", "parameters": []}, "tools[0].parameters"),
        ({"type": "namespace", "name": "x"}, "tools[0].tools"),
        ({"type": "namespace", "name": "x", "tools": [{"type": "web_search"}]}, "tools[0].tools[0]"),
        ({"type": "custom", "name": "x", "format": {"type": "grammar"}}, "tools[0].format.definition"),
    ],
)
def test_faults_are_named(tool: Any, param: str) -> None:
    with pytest.raises(InvalidField) as caught:
        box(tool)
    assert caught.value.param == param and caught.value.message.startswith(param)


def test_two_functions_of_one_name() -> None:
    with pytest.raises(InvalidField, match=r"^tools\[1\]\.name: 'ls' is the name of an earlier tool"):
        box(FUNCTION, FUNCTION)


@pytest.mark.parametrize(
    ("value", "expected", "callable"),
    [
        (None, ToolChoice("auto"), 4),
        ("auto", ToolChoice("auto"), 4),
        ("none", ToolChoice("none"), 4),
        ("required", ToolChoice("required"), 4),
        ({"type": "function", "name": "ls"}, ToolChoice("required", "ls"), 4),
        ({"type": "custom", "name": "apply_patch"}, ToolChoice("required", "apply_patch"), 4),
        ({"type": "function", "name": "log", "namespace": "mcp__git"}, ToolChoice("required", "mcp__git__log"), 4),
        ({"type": "allowed_tools", "mode": "auto", "tools": [FUNCTION, CUSTOM, HOSTED]}, ToolChoice("auto"), 4),
        ({"type": "allowed_tools", "mode": "auto", "tools": [HOSTED]}, ToolChoice("none"), 4),
        ({"type": "allowed_tools", "mode": "required", "tools": [FUNCTION]}, ToolChoice("required", "ls"), 1),
        ({"type": "allowed_tools", "mode": "required", "tools": [FUNCTION, CUSTOM]}, ToolChoice("required"), 2),
    ],
)
def test_choice(value: Any, expected: ToolChoice, callable: int) -> None:
    chosen = read_choice(value, box(*TOOLS))
    assert chosen.choice == expected and len(chosen.callable) == callable


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ("any", "tool_choice"),
        ({"type": "web_search_preview"}, "tool_choice"),
        ({"type": "function", "name": "gone"}, "tool_choice"),
        ({"type": "function"}, "tool_choice.name"),
        ({"type": "allowed_tools", "mode": "any", "tools": []}, "tool_choice.mode"),
        ({"type": "allowed_tools", "mode": "auto"}, "tool_choice.tools"),
        ({"type": "allowed_tools", "mode": "auto", "tools": [7]}, "tool_choice.tools[0]"),
        ({"type": "allowed_tools", "mode": "required", "tools": [HOSTED]}, "tool_choice"),
    ],
)
def test_faults_of_a_choice(value: Any, param: str) -> None:
    with pytest.raises(InvalidField) as caught:
        read_choice(value, box(*TOOLS))
    assert caught.value.param == param
