"""Ids of conversations are those of the long way, whatever was read before and whatever was forgotten."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.base.errors import RequestError
from samovar.text.answer import Answer, Call
from samovar.text.checkpoint import TextParts
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer
from samovar.text.turns.reader import Turn, TurnReader
from tests.text.turns.conversations import BLOCK, ROOT, TEMPLATES, ids_of, long_way, messages, tool


def turns(draw: st.DrawFn, said: list[dict[str, Any]]) -> list[Turn]:
    """A conversation as it grows, with things that clients do to it in between."""
    options: dict[str, Any] = {}
    if draw(st.booleans()):
        options["tools"] = [tool("g"), tool()]
    if draw(st.integers(0, 3)) == 0:
        options["variables"] = {"enable_thinking": draw(st.booleans())}
    options["add_special_tokens"] = draw(st.integers(0, 4)) == 0
    ends = [at for at, message in enumerate(said) if message["role"] == "assistant"]
    asked = [Turn(said[:end], **options) for end in ends if end]
    asked.append(Turn(said, **options))
    if draw(st.integers(0, 2)) == 0:
        changed = [dict(message) for message in said]
        at = draw(st.integers(0, len(changed) - 1))
        changed[at]["content"] = changed[at]["content"] + draw(st.sampled_from([" ", "x", "<|im_end|>"]))
        asked.append(Turn(changed, **options))
    if draw(st.booleans()):
        asked.append(Turn(said, **{**options, "add_generation_prompt": False}))
    if draw(st.booleans()) and "tool_calls" not in said[-2]:
        asked.append(Turn(said[:-1], **{**options, "continue_final_message": True}))
    return draw(st.permutations(asked)) if draw(st.integers(0, 3)) == 0 else asked


def check(reader: TurnReader, tokenizer: Tokenizer, template: ChatTemplate, turn: Turn) -> None:
    try:
        expected = long_way(tokenizer, template, turn)
    except RequestError as error:
        with pytest.raises(RequestError) as same:
            reader.read(turn, ROOT, BLOCK)
        assert same.value.message == error.message
        return
    assert ids_of(reader.read(turn, ROOT, BLOCK)) == expected
    reader.check()


class Growing:
    """Readers that see one conversation after the other, one of them with next to no memory."""

    def __init__(self, tokenizer: Tokenizer, source: str) -> None:
        self.tokenizer = tokenizer
        self.template = ChatTemplate({"default": source}, tokenizer.special_tokens)
        self.readers = [TurnReader(tokenizer, self.template, memory_bytes=size) for size in (256 << 20, 20_000)]

    def run(self, data: st.DataObject) -> None:
        said = data.draw(messages())
        for turn in turns(data.draw, said):
            for reader in self.readers:
                check(reader, self.tokenizer, self.template, turn)


@pytest.mark.model
@pytest.mark.parametrize("name", TEMPLATES)
def test_smollm2(smollm2: TextParts, name: str) -> None:
    growing = Growing(smollm2.tokenizer, TEMPLATES[name])

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        growing.run(data)

    run()


@pytest.mark.model
def test_smollm2_with_its_own_template(smollm2: TextParts) -> None:
    assert smollm2.template is not None
    growing = Growing(smollm2.tokenizer, smollm2.template.source(with_tools=False))
    assert growing.template.appends(with_tools=False)

    @settings(max_examples=100, deadline=None)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        growing.run(data)

    run()


@pytest.mark.parametrize("name", TEMPLATES)
def test_small_vocabularies(small_bpe: Tokenizer, small_spm: Tokenizer, name: str) -> None:
    both = [Growing(tokenizer, TEMPLATES[name]) for tokenizer in (small_bpe, small_spm)]

    @settings(max_examples=40, deadline=None)
    @given(st.data(), st.integers(0, 1))
    def run(data: st.DataObject, which: int) -> None:
        both[which].run(data)

    run()


@pytest.mark.model
def test_only_what_is_new_is_rendered(smollm2: TextParts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the template only appends, also with answers that are put back."""
    assert smollm2.template is not None
    rendered: list[int] = []
    write = ChatTemplate.write

    def counting(self: ChatTemplate, arranged: Any, /, **options: Any) -> str:
        rendered.append(len(arranged))
        return write(self, arranged, **options)

    reader = TurnReader(smollm2.tokenizer, smollm2.template)
    monkeypatch.setattr(ChatTemplate, "write", counting)
    said: list[dict[str, Any]] = [{"role": "user", "content": "Look."}]
    for number in range(12):
        prompt = reader.read(Turn(said, [tool()]), ROOT, BLOCK)
        if number > 1:
            assert rendered and max(rendered) <= 4, (number, rendered)
        rendered.clear()
        assert prompt.answer is not None
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        spoken = smollm2.tokenizer.encode('I do. <tool_call>{"name": "f", "arguments":{}}</tool_call>')
        reader.remember(
            prompt.answer, [*spoken, smollm2.tokenizer.eos_ids[0]], Answer("I do. ", "", (Call("f", "{}"),))
        )
        said = [
            *said,
            {"role": "assistant", "content": "I do. ", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": f"done {number}"},
        ]
