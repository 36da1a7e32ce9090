"""One text for definitions that mean the same."""

from __future__ import annotations

import json
import random
from typing import Any

from samovar.text.formats.canonical import canonical_tools

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place.",
        "parameters": {
            "$schema": "x",
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "Where."},
                "required": {"type": "array", "items": {"type": "string", "enum": ["b", "a"]}},
                "description": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/t"}], "default": {"y": 1, "x": 2}},
            },
            "required": ["place", "description"],
            "$defs": {"t": {"type": "object", "properties": {"b": {}, "a": True}}},
        },
        "strict": True,
    },
}
OTHER: dict[str, Any] = {"type": "function", "function": {"name": "a", "parameters": {}}}
CUSTOM: dict[str, Any] = {"type": "custom", "custom": {"name": "b", "format": {"type": "text"}}}


def _shuffled(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict):
        return {key: _shuffled(value[key], rng) for key in rng.sample(list(value), len(value))}
    return [_shuffled(item, rng) for item in value] if isinstance(value, list) else value


def test_order_does_not_matter() -> None:
    expected = json.dumps(canonical_tools([WEATHER, OTHER, CUSTOM]))
    rng = random.Random(7)
    for _ in range(50):
        tools = [_shuffled(tool, rng) for tool in rng.sample([WEATHER, OTHER, CUSTOM], 3)]
        before = json.dumps(tools)
        assert json.dumps(canonical_tools(tools)) == expected
        assert json.dumps(tools) == before


def test_the_order_reads_well() -> None:
    other, custom, weather = canonical_tools([WEATHER, CUSTOM, OTHER])
    assert (other, custom) == (OTHER, CUSTOM)
    assert list(weather["function"]) == ["name", "description", "parameters", "strict"]
    parameters = weather["function"]["parameters"]
    assert list(parameters) == ["type", "properties", "required", "$defs", "$schema"]
    assert list(parameters["properties"]) == ["description", "place", "required"]
    assert list(parameters["properties"]["description"]["default"]) == ["x", "y"]
    assert parameters["required"] == ["description", "place"]


def test_lists_that_may_have_an_order_keep_it() -> None:
    (tool,) = canonical_tools([WEATHER])
    properties = tool["function"]["parameters"]["properties"]
    assert properties["required"]["items"]["enum"] == ["b", "a"]
    assert properties["description"]["anyOf"] == [{"type": "null"}, {"$ref": "#/$defs/t"}]
    assert tool["function"]["parameters"] == {**WEATHER["function"]["parameters"], "required": ["description", "place"]}
