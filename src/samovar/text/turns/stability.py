"""Whether a template keeps the prefix: tried out on a made-up conversation, before a client pays for it.

Every prompt should begin with the one before it, up to where the answer began. A template that moves, drops or
rewrites what stood there makes the engine compute everything behind that place again, each turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
import json
from typing import Any

from samovar.base.errors import RequestError
from samovar.base.keys import unpack_tokens
from samovar.text.answer import Answer, Call
from samovar.text.messages import Message
from samovar.text.tokenizer import Tokenizer
from samovar.text.turns.reader import Turn, TurnPrompt, TurnReader

_SHOWN_TOKENS = 12
_BLOCK_TOKENS = 16
_ROOT = bytes(16)
_TOOL = {
    "type": "function",
    "function": {
        "name": "measure",
        "description": "Measures.",
        "parameters": {"type": "object", "properties": {"vessel": {"type": "string"}}, "required": ["vessel"]},
    },
}
_CALL = {"vessel": "kettle"}


@dataclass(frozen=True, slots=True)
class Break:
    """The first place where a prompt leaves the one before."""

    when: str
    """What the conversation went on with."""
    token: int
    of: int
    """Tokens that should have been kept."""
    before: str
    """Text that stood there."""
    now: str

    def __str__(self) -> str:
        return (
            f"the chat template breaks the prefix {self.when}: token {self.token} of {self.of} changes from "
            f"{self.before!r} to {self.now!r}; every such turn computes what follows it again"
        )


@dataclass(frozen=True, slots=True)
class _Step:
    """The model answers, and the client goes on."""

    when: str
    spoken: str
    answer: Answer
    adds: Sequence[Message]


def find_break(tokenizer: Tokenizer, make: Callable[[], TurnReader]) -> Break | None:
    """`make`: a reader that remembers nothing yet. What the template refuses is passed over: whoever sends that is told
    so."""
    for tools in ((), (_TOOL,)):
        found = _Trial(tokenizer, make(), tools).run()
        if found is not None:
            return found
    return None


class _Trial:
    def __init__(self, tokenizer: Tokenizer, reader: TurnReader, tools: Sequence[dict[str, Any]]) -> None:
        self._tokenizer = tokenizer
        self._reader = reader
        self._tools = tools

    def run(self) -> Break | None:
        messages: list[Message] = [_says("system", "You pour tea."), _says("user", "How warm is the kettle?")]
        prompt = self._read(messages)
        for step in _steps(with_tools=bool(self._tools)):
            if prompt is None:
                return None
            spoken = self._tokenizer.encode(step.spoken)
            if prompt.answer is not None:
                self._reader.remember(prompt.answer, [*spoken, *self._tokenizer.eos_ids[:1]], step.answer)
            longer = [*messages, _message(step.answer), *step.adds]
            following = self._read(longer)
            if following is None:
                continue
            # How a family spells calls is not known here.
            expected = [] if step.answer.calls else [*unpack_tokens(prompt.packed), *spoken]
            if step.answer.calls and (unopened := self._read(messages, opened=False)) is not None:
                expected = unpack_tokens(unopened.packed)
            found = self._compare(step.when, expected, unpack_tokens(following.packed))
            if found is not None:
                return found
            messages, prompt = longer, following
        return None

    def _read(self, messages: Sequence[Message], *, opened: bool = True) -> TurnPrompt | None:
        turn = Turn(messages, self._tools, add_generation_prompt=opened)
        try:
            return self._reader.read(turn, _ROOT, _BLOCK_TOKENS)
        except RequestError:
            return None

    def _compare(self, when: str, expected: Sequence[int], found: Sequence[int]) -> Break | None:
        pairs = zip(expected, found, strict=False)
        at = next((at for at, (old, new) in enumerate(pairs) if old != new), min(len(expected), len(found)))
        if at == len(expected):
            return None
        before, now = (
            self._tokenizer.decode(ids[at : at + _SHOWN_TOKENS], skip_special_tokens=False, at_start=False)
            for ids in (expected, found)
        )
        return Break(when, at, len(expected), before, now)


def _steps(*, with_tools: bool) -> list[_Step]:
    steps = [_Step("when an answer has become history", "Quite warm.", Answer("Quite warm."), [_says("user", "And?")])]
    if with_tools:
        spoken = f'<tool_call>\n{{"name": "measure", "arguments": {json.dumps(_CALL)}}}\n</tool_call>'
        result = {"role": "tool", "tool_call_id": "call00001", "name": "measure", "content": "96"}
        called = Answer("", "", (Call("measure", json.dumps(_CALL)),))
        steps.append(_Step("when a tool was called", spoken, called, [result]))
    left = _says("system", "9 cups left.")
    thought = Answer("Pour it.", "It is warm enough.")
    spoken = f"<think>\n{thought.reasoning}\n</think>\n\n{thought.text}"
    return [
        *steps,
        _Step("when a system message follows an answer", "Yes.", Answer("Yes."), [left, _says("user", "So?")]),
        _Step("when the model has reasoned", spoken, thought, [_says("user", "Why?")]),
        _Step("when an earlier answer had reasoning", "For the tea.", Answer("For the tea."), [_says("user", "Good.")]),
    ]


def _says(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _message(answer: Answer) -> Message:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {"id": "call00001", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.calls
        ]
    return message
