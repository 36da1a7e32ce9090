"""When an answer is put back word for word, and when it is not: ids of calls, fields that a client adds, stop strings,
and templates that refuse what stands in for it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from samovar.base.errors import InvalidField
from samovar.base.keys import unpack_tokens
from samovar.text.answer import Answer, Call
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer
from samovar.text.turns.reader import Turn, TurnReader
from tests.text.turns.conversations import BLOCK, ROOT, THINKING, long_way, tool

HEAD = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
TAIL = "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
CALLS = "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}"
WITHOUT_IDS = HEAD + "{{ m.content }}" + CALLS + TAIL
WITH_IDS = (
    HEAD + "{{ m.content }}" + CALLS.replace("[{{", "[{{ c.id }} {{") + "{% if m.role == 'tool' %}"
    "({{ m.tool_call_id }}){% endif %}" + TAIL
)
WITH_NAMES = HEAD + "{{ m.author ~ ': ' if m.author }}{{ m.content }}" + CALLS + TAIL
WITH_ANYTHING = (
    HEAD
    + "{{ m.content }}{% for k, v in m | items if k not in ('role', 'content') %}{{ k }}={{ v }}"
    + ("{% endfor %}" + TAIL)
)


class Talk:
    def __init__(self, tokenizer: Tokenizer, source: str, *, tools: bool = True) -> None:
        self.tokenizer = tokenizer
        self.template = ChatTemplate({"default": source}, tokenizer.special_tokens)
        self.reader = TurnReader(tokenizer, self.template)
        self.tools = [tool()] if tools else []
        self.said: list[dict[str, Any]] = [{"role": "user", "content": "How warm?"}]

    def read(self, *more: dict[str, Any], **options: Any) -> list[int]:
        turn = Turn(deepcopy([*self.said, *more]), self.tools)
        return unpack_tokens(self.reader.read(turn, ROOT, BLOCK, **options).packed)

    def answer(self, spoken: str, answer: Answer, end: str = "<|im_end|>") -> list[int]:
        """Generates `spoken` letter by letter; returns all ids up to there."""
        prompt = self.reader.read(Turn(deepcopy(self.said), self.tools), ROOT, BLOCK)
        assert prompt.answer is not None
        ids = [id for letter in spoken for id in self.tokenizer.encode(letter)]
        self.reader.remember(prompt.answer, [*ids, *self.tokenizer.encode(end)], answer)
        return [*unpack_tokens(prompt.packed), *ids]

    def puts_back(self, known: list[int], *more: dict[str, Any]) -> bool:
        ids = self.read(*more)
        if ids[: len(known)] == known:
            return True
        assert ids == long_way(self.tokenizer, self.template, Turn([*self.said, *more], self.tools))
        return False


def called(id: str, **more: Any) -> dict[str, Any]:
    call = {"id": id, "type": "function", "function": {"name": "f", "arguments": '{"a": "1"}'}}
    return {"role": "assistant", "content": "", "tool_calls": [call], **more}


def result(id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": "96"}


@pytest.mark.parametrize(("source", "renamed"), [(WITHOUT_IDS, True), (WITH_IDS, False)], ids=["unseen", "seen"])
def test_ids_that_a_client_renamed(small_bpe: Tokenizer, source: str, renamed: bool) -> None:
    """A result must not refer to a call by another id than the call has in the text."""
    talk = Talk(small_bpe, source)
    known = talk.answer('[own f{"a":"1"}]', Answer("", "", (Call("f", '{"a":"1"}', "own"),)))
    assert talk.puts_back(known, called("own"), result("own"))
    assert talk.puts_back(known, called("other"), result("other")) == renamed


def test_ids_that_the_model_did_not_write(small_bpe: Tokenizer) -> None:
    talk = Talk(small_bpe, WITH_IDS)
    known = talk.answer('[f{"a":"1"}]', Answer("", "", (Call("f", '{"a":"1"}'),)))
    assert talk.puts_back(known, called("any"), result("any"))


@pytest.mark.parametrize(
    ("source", "field", "kept"),
    [
        (WITHOUT_IDS, "author", True),
        (WITH_NAMES, "author", False),
        (WITH_NAMES, "refusal", True),
        (WITH_ANYTHING, "refusal", False),
    ],
)
def test_fields_that_a_client_adds(small_bpe: Tokenizer, source: str, field: str, kept: bool) -> None:
    """They are shown where the template shows them; else they cost nothing."""
    talk = Talk(small_bpe, source)
    known = talk.answer("Quite warm.", Answer("Quite warm."))
    answer = {"role": "assistant", "content": "Quite warm."}
    following = {"role": "user", "content": "And?"}
    assert talk.puts_back(known, answer, following)
    assert talk.puts_back(known, {**answer, field: "Bo"}, following) == kept


THOUGHT = "<think>\nhm\n</think>\n\n"


@pytest.mark.parametrize(
    ("spoken", "answer", "kept"),
    [
        (f"{THOUGHT}Warm.", Answer("Warm.", "hm"), True),
        (f"{THOUGHT}Warm.\nSTOP", Answer("Warm.\n", "hm"), False),
        (f"{THOUGHT}STOP", Answer("", "hm"), False),
        ("<think>\nhm STOP", Answer("", "hm "), False),
        ("<think>\nhm", Answer("", "hm"), True),
        ('<tool_call>{"name":"f","arguments":{"a":"1', Answer("", "", (Call("f", '{"a":"1'),)), True),
        (
            '<tool_call>{"name":"f","arguments":{"a":"1"}}</tool_call>STOP',
            Answer("", "", (Call("f", '{"a":"1"}'),)),
            False,
        ),
    ],
)
def test_a_stop_string_stays_out(small_bpe: Tokenizer, spoken: str, answer: Answer, kept: bool) -> None:
    """An answer that something cut off comes back as it was generated only when that is all of it."""
    talk = Talk(small_bpe, THINKING)
    known = talk.answer(spoken, answer, end="")
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "reasoning_content": answer.reasoning}
    if answer.calls:
        message["tool_calls"] = [{"function": {"name": "f", "arguments": answer.calls[0].arguments}}]
    assert talk.puts_back(known, message, {"role": "user", "content": "And?"}) == kept
    assert "STOP" not in small_bpe.decode(talk.read(message))


# Takes the stand-ins that it is tried out with, and not the one of a second message, which ends with its number.
REFUSING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and m.content | length > 20 and m.content[-1] == '1' and ' ' not in m.content %}"
    "{{ raise_exception('no words in ' + m.content) }}{% endif %}{{ m.content }}" + TAIL
)


def test_a_template_that_refuses_the_stand_in(small_bpe: Tokenizer) -> None:
    """Its word on letters that no client sent is nobody's business."""
    talk = Talk(small_bpe, REFUSING, tools=False)
    assert talk.template.appends(with_tools=False)
    spoken = "Quite warm, thank you, and you?"
    talk.answer(spoken, Answer(spoken))
    answer = {"role": "assistant", "content": spoken}
    for more in ([{"role": "user", "content": "And?"}], [{"role": "user", "content": "So?"}]):
        assert small_bpe.decode(talk.read(answer, *more)).count(spoken) == 1
    with pytest.raises(InvalidField, match="no words in 11111"):
        talk.read({**answer, "content": "1" * 30}, {"role": "user", "content": "And?"})
    # Also where all of it is rendered.
    talk = Talk(small_bpe, REFUSING.replace("{% for", "{{ messages | length }}{% for", 1), tools=False)
    assert not talk.template.appends(with_tools=False)
    talk.answer(spoken, Answer(spoken))
    assert small_bpe.decode(talk.read(answer, {"role": "user", "content": "And?"})).count(spoken) == 1


def test_who_only_looks_leaves_everything_as_it_was(small_bpe: Tokenizer) -> None:
    """And gets the same ids as who asks."""
    for source in (WITHOUT_IDS, THINKING):
        talk = Talk(small_bpe, source)
        known = talk.answer("Quite warm.", Answer("Quite warm."))
        answer = {"role": "assistant", "content": "Quite warm."}
        following = {"role": "user", "content": "And?"}
        kept = remembered(talk.reader)
        looked = talk.read(answer, following, remember=False)
        talk.tools = [tool("other")]
        talk.read({"role": "user", "content": "x<|im_end|>"}, remember=False)
        talk.tools = [tool()]
        assert remembered(talk.reader) == kept
        assert talk.read(answer, following) == looked and looked[: len(known)] == known
        assert remembered(talk.reader) != kept


def remembered(reader: TurnReader) -> list[Any]:
    """What is kept, in the order in which it would go."""
    memories: list[Any] = [reader._answers, reader._keys, reader._places, reader._heads, reader._offers._known]
    parts = [(id(leaf), leaf.text) for leaf in reader._encoder.memory._leaves]
    return [*(list(memory._entries) for memory in [*memories, reader._histories._seen]), parts]
