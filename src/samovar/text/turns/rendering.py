"""One template as conversations are rendered by it: tools made to show, messages arranged, past answers put back; and,
where the template only ever appends, no more rendered than what is new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from samovar.base.errors import RequestError
from samovar.text.formats.tool_prompt import with_tools as spelt_out
from samovar.text.messages import Message, arrange
from samovar.text.template import ChatTemplate
from samovar.text.turns.splicing import Render, Splice, Splicing, splicing_of

_ANSWER_FIELDS = {"role", "content", "tool_calls", "reasoning_content", "reasoning"}
ANY_TOOL = {
    "type": "function",
    "function": {"name": "qz", "description": "", "parameters": {"type": "object", "properties": {}}},
}


@dataclass(frozen=True, slots=True)
class Options:
    """How a request wants its messages rendered."""

    variables: Mapping[str, Any]
    add_generation_prompt: bool = True
    continue_final_message: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """What a conversation's first message alone gives, tools included."""

    text: str
    opened: str
    """What opens an answer."""


class Rendering:
    """For requests with tools, or for those without. Immutable."""

    def __init__(self, template: ChatTemplate, end_texts: Sequence[str], nonce: str, *, with_tools: bool) -> None:
        """`end_texts`: tokens that end an answer; `nonce`: letters and digits that no client can know."""
        self._template = template
        self._traits = template.traits(with_tools=with_tools)
        self._spells_out = not self._traits.reads_tools
        self._source = template.source(with_tools=with_tools)
        tools = [ANY_TOOL] if with_tools else []

        def render(messages: Sequence[Message], opened: bool) -> str:
            return self._run(messages, tools, Options({}, opened))

        self.splicing: Splicing | None = splicing_of(render, end_texts, nonce)
        self._shows_any_field = _shows_any_field(render, nonce)
        self.appends = (
            template.appends(with_tools=with_tools and not self._spells_out)
            and not self._traits.merged_roles
            and self._traits.system == "anywhere"
            and self._traits.user_after_tool
        )
        """Whether a conversation that goes on with an answer keeps the text it had, and `write_behind` can be used."""

    def write(
        self, flat: Sequence[Message], tools: Sequence[Mapping[str, Any]], options: Options, answers: Mapping[int, str]
    ) -> str:
        """The text of all messages, whose contents are text. `answers`: what the model wrote, by the message in which
        it comes back. Raises RequestErrors."""
        if self.splicing is not None and answers:
            try:
                text = self._run(self._with_stand_ins(flat, answers), tools, options)
            except RequestError:
                text = ""  # it may be the template's word on stand-ins; on the messages themselves it has its own
            spliced = self.splicing.put_back(text, self._in_order(answers))
            if spliced is not None:
                return spliced
        return self._run(flat, tools, options)

    def head(self, flat: Sequence[Message], tools: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> Head:
        """Only where the template `appends`. Raises RequestErrors."""
        text = self._run(flat[:1], tools, Options(variables, False))
        opened = self._run(flat[:1], tools, Options(variables, True))
        assert opened.startswith(text)
        return Head(text, opened[len(text) :])

    def write_behind(
        self,
        head: Head,
        flat: Sequence[Message],
        begin: int,
        tools: Sequence[Mapping[str, Any]],
        options: Options,
        answers: Mapping[int, str],
    ) -> str | None:
        """What messages from `begin` on, an answer first, add to the text of those before. None when an answer has no
        clear place in it, or the template refuses the words that stand in for one. Raises RequestErrors."""
        new = {at: text for at, text in answers.items() if at >= begin}
        said = self._with_stand_ins(flat, new) if new else flat
        try:
            text = self._run([flat[0], *said[begin:]], tools, options)
        except RequestError:
            if not new:
                raise
            return None  # it may be about the stand-ins
        if new:
            assert self.splicing is not None
            # Before the head is cut off: what opens an answer may begin with what ends the message before it.
            spliced = self.splicing.put_back(text, self._in_order(new))
            if spliced is None or not spliced.startswith(head.text):
                return None
            text = spliced
        assert text.startswith(head.text)
        return text[len(head.text) :]

    def puts_back(self, flat: Sequence[Message], at: int) -> bool:
        """Whether the answer in message `at` can give way to what the model wrote."""
        if self.splicing is None or (flat[at].get("tool_calls") and not self.splicing.calls):
            return False
        # What the model wrote has none of the fields that a client adds, such as a name.
        added = flat[at].keys() - _ANSWER_FIELDS
        if added and (self._shows_any_field or any(key in self._source for key in added)):
            return False
        # Where answers follow each other, they may be merged.
        return all(flat[by]["role"] != "assistant" for by in (at - 1, at + 1) if 0 <= by < len(flat))

    def refers_alike(self, message: Message, call_ids: Sequence[str | None]) -> bool:
        """Whether results that answer the calls in `message` also answer these, which the model wrote: a client may
        have renamed them. `call_ids`: None for a call that the model gave none."""
        if self.splicing is None or not self.splicing.shows_ids:
            return True
        calls = message.get("tool_calls") or ()
        return all(id is None or call.get("id") == id for id, call in zip(call_ids, calls, strict=True))

    def _with_stand_ins(self, flat: Sequence[Message], answers: Mapping[int, str]) -> list[Message]:
        assert self.splicing is not None
        said = list(flat)
        for at in answers:
            said[at] = self.splicing.stand_in(flat[at], self.splicing.mark(at))
        return said

    def _in_order(self, answers: Mapping[int, str]) -> list[Splice]:
        assert self.splicing is not None
        return [Splice(self.splicing.mark(at), answers[at]) for at in sorted(answers)]

    def _run(self, flat: Sequence[Message], tools: Sequence[Mapping[str, Any]], options: Options) -> str:
        if self._spells_out:
            flat, tools = spelt_out(flat, tools), ()
        return self._template.write(
            arrange(flat, self._traits),
            tools=tools,
            add_generation_prompt=options.add_generation_prompt,
            continue_final_message=options.continue_final_message,
            extra=options.variables,
        )


def _shows_any_field(render: Render, nonce: str) -> bool:
    """Whether the template writes fields of an answer whatever they are called."""
    answer = {"role": "assistant", "content": "Qzanswer", f"{nonce}field": "Qzfield"}
    asked = {"role": "user", "content": "Qzquestion"}
    try:
        return nonce in render([asked, answer, asked], True)
    except RequestError:
        return True
