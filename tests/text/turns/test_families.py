"""Answers come back word for word with every family's template, and what its template cannot take is put otherwise."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from samovar.base.keys import unpack_tokens
from samovar.text.answer import Answer, Call
from samovar.text.template_traits import TemplateTraits
from samovar.text.turns.controls import MARKERS
from samovar.text.turns.reader import Turn, TurnPrompt, TurnReader
from samovar.text.turns.stability import find_break
from tests.text.turns.conversations import BLOCK, ROOT, text_of, tool
from tests.text.turns.families import FAMILIES

ARGUMENTS = '{"a": "x", "b": 1}'
CALL = Call("measure", ARGUMENTS)


class Model:
    def __init__(self, name: str, **options: Any) -> None:
        self.family = FAMILIES[name]
        self.tokenizer = self.family.tokenizer()
        self.template = self.family.template(self.tokenizer)
        marks = {token for token in self.family.tokens if token in self.family.call}
        self.reader = TurnReader(self.tokenizer, self.template, markers=MARKERS | marks)
        self.options = options

    def read(self, messages: list[dict[str, Any]]) -> TurnPrompt:
        return self.reader.read(Turn(deepcopy(messages), **self.options), ROOT, BLOCK)

    def text(self, prompt: TurnPrompt) -> str:
        return self.tokenizer.decode(unpack_tokens(prompt.packed), skip_special_tokens=False)


def says(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("tools", [[], [tool("measure")]], ids=["no tools", "tools"])
def test_a_session(name: str, tools: list[Any]) -> None:
    """Text, a call with text beside it, reasoning, reminders of the system: each prompt begins with the one before and
    what was generated after it."""
    model = Model(name, tools=tools)
    call = {"id": "call_0123456789", "type": "function", "function": {"name": "measure", "arguments": ARGUMENTS}}
    said = [says("system", "Be brief."), says("user", "u1")]
    steps: list[tuple[str, Answer, dict[str, Any], list[dict[str, Any]]]] = [
        (" Warm. \n", Answer("Warm."), says("assistant", "Warm."), [says("user", "u2")]),
        (
            f"I look.\n{model.family.call}",
            Answer("I look.\n", "", (CALL,)),
            says("assistant", "I look.", tool_calls=[call]),
            [says("tool", "96", tool_call_id="call_0123456789"), says("system", "9 left")],
        ),
        ("Hot", Answer("Hot"), says("assistant", "Hot"), [says("user", "u3")]),
        (
            "<think>\nhm </think>\n\nYes.",
            Answer("\n\nYes.", "\nhm "),
            says("assistant", "Yes.", reasoning_content="hm"),
            [says("system", "8 left"), says("user", "u4")],
        ),
        ("So.", Answer("So."), says("assistant", "So."), [says("user", "u5")]),
    ]
    prompt = model.read(said)
    for spoken, answer, message, more in steps:
        ids = [token for letter in spoken for token in model.tokenizer.encode(letter)]
        if any(token in spoken for token in model.family.tokens):
            ids = model.tokenizer.encode(spoken)
        assert prompt.answer is not None
        model.reader.remember(prompt.answer, [*ids, model.tokenizer.eos_ids[0]], answer)
        said = [*said, message, *more]
        following = model.read(said)
        known = [*unpack_tokens(prompt.packed), *ids]
        assert unpack_tokens(following.packed)[: len(known)] == known, (model.text(prompt), model.text(following))
        prompt = following
        model.reader.check()
    text = model.text(prompt)
    places = [text.index(part) for part in ("Be brief.", "u1", "Warm", "u2", "I look", "96", "9 left", "Hot", "u3")]
    assert places == sorted(places)
    assert model.reader.read(Turn(said, **model.options), b"other" * 4, BLOCK).packed != prompt.packed


@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_breaks_the_prefix(name: str) -> None:
    model = Model(name)
    found = find_break(model.tokenizer, lambda: TurnReader(model.tokenizer, model.template))
    assert found is None, str(found)


@pytest.mark.parametrize("name", FAMILIES)
def test_without_memory_it_is_the_template_s(name: str) -> None:
    model = Model(name, tools=[tool("measure")])
    call = {"id": "123456789", "type": "function", "function": {"name": "measure", "arguments": ARGUMENTS}}
    said = [
        says("user", "u1"),
        says("assistant", "", tool_calls=[call]),
        says("tool", "96", tool_call_id="123456789"),
        says("assistant", "Hot", reasoning_content="hm"),
        says("user", "u2"),
    ]
    assert model.text(model.read(said)) == text_of(model.template, Turn(said, **model.options))


def test_traits() -> None:
    def traits(name: str) -> TemplateTraits:
        model = Model(name)
        return model.template.traits(with_tools=True)

    assert traits("llama3") == TemplateTraits(reads_tools=True)
    assert traits("mistral") == TemplateTraits(
        merged_roles=frozenset({"system", "user", "assistant"}),
        system="head",
        user_after_tool=False,
        short_call_ids=True,
        reads_tools=True,
    )
    assert traits("deepseek").null_content_with_calls and traits("deepseek").string_arguments
    assert traits("glm") == TemplateTraits(reads_tools=True)


def test_a_reminder_after_a_result_joins_it_where_roles_take_turns() -> None:
    model = Model("mistral")
    call = {"id": "toolu_01ABCDEFGHIJ", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = [
        says("user", "u1"),
        says("assistant", None, tool_calls=[call]),
        says("tool", "96", tool_call_id="toolu_01ABCDEFGHIJ"),
        says("user", "u2"),
        says("system", "9 left"),
    ]
    text = model.text(model.read(said))
    assert "[TOOL_RESULTS] 96\n\nu2\n\n9 left[/TOOL_RESULTS]" in text
    # The same id always becomes the same nine characters, and short ones stay.
    assert model.text(model.read(said)) == text and "toolu_" not in text
    said[1]["tool_calls"][0]["id"] = said[2]["tool_call_id"] = "abcDEF123"
    assert '"id": "abcDEF123"' in model.text(model.read(said))
