"""What the model wrote, put back word for word in place of what the template makes of it.

A template spells a past answer in its own way: other blanks, arguments in another order, reasoning dropped. So it is
given a stand-in, and afterwards everything between what opens an answer and the token that ends it gives way to the
words that were generated. Whether a template allows that is tried out beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
import json
import re
from typing import Any

from samovar.base.errors import RequestError
from samovar.text.messages import Message
from samovar.text.turns.splitting import any_of

Render = Callable[[Sequence[Message], bool], str]
"""Messages, and whether to open an answer, to text. Raises RequestErrors."""

_MAX_OPENING = 1000
"""Characters that a template puts behind an answer's header for the model to go on with (`<think>`, mostly), or between
two mentions of a call."""


@dataclass(frozen=True, slots=True)
class Splice:
    mark: str
    """Letters and digits that stand in the text in the answer's place."""
    text: str
    """What the model wrote, and before it what the template opened the answer with."""


@dataclass(frozen=True, slots=True)
class Splicing:
    """What one template allows."""

    headers: tuple[str, ...]
    """What precedes an answer, both when it begins and as history: after a question, and after a tool's result. More
    may follow in either: a blank, an empty block of reasoning."""
    ends: re.Pattern[str]
    """Finds any token that ends an answer."""
    nonce: str
    """Every mark begins with it."""
    calls: bool
    """Answers with calls can be put back too."""
    shows_ids: bool = False
    """Ids of calls stand in the text."""

    def mark(self, number: int) -> str:
        return f"{self.nonce}{number:06x}"

    def stand_in(self, message: Message, mark: str) -> Message:
        """`message` with `mark` for everything it says. Its calls keep number, names and ids: others refer to them."""
        stand_in: dict[str, Any] = {"role": message["role"], "content": mark}
        calls = message.get("tool_calls")
        if calls:
            stand_in["tool_calls"] = [_stand_in_call(call, mark) for call in calls]
        return stand_in

    def opening(self, text: str) -> str | None:
        """What a prompt that ends with an opened answer has behind the answer's header."""
        begin = self._behind_header(text, 0, len(text))
        if begin is None or len(text) - begin > _MAX_OPENING or self.ends.search(text, begin):
            return None
        return text[begin:]

    def put_back(self, text: str, splices: Sequence[Splice]) -> str | None:
        """`text` with all of them in place; None when one has no clear place."""
        pieces: list[str] = []
        done = 0
        for splice in splices:
            place = self.place(text, splice.mark, done)
            if place is None:
                return None
            begin, end = place
            if self.nonce in (kept := text[done:begin]):
                return None
            pieces += [kept, splice.text]
            done = end
        rest = text[done:]
        return None if self.nonce in rest else "".join([*pieces, rest])

    def place(self, text: str, mark: str, start: int) -> tuple[int, int] | None:
        """Where the answer stands that `mark` stands for."""
        first = text.find(mark, start)
        if first < 0:
            return None
        begin = self._behind_header(text, start, first)
        last = first
        while (found := text.find(mark, last + 1, last + _MAX_OPENING)) >= 0:
            last = found
        end = self.ends.search(text, last)
        return None if begin is None or end is None else (begin, end.start())

    def _behind_header(self, text: str, start: int, stop: int) -> int | None:
        """Behind the last header in this stretch of text."""
        # From a little before its start: a header may begin with what ended the answer before it.
        found = [
            at + len(header)
            for header in self.headers
            if (at := text.rfind(header, max(0, start - len(header)), stop)) >= 0
        ]
        return max(found, default=None)


def splicing_of(render: Render, end_texts: Collection[str], nonce: str) -> Splicing | None:
    """Tries the template out; None when answers cannot be put back. `nonce`: letters and digits that nobody else
    knows."""
    if not end_texts:
        return None
    ends = re.compile(any_of(end_texts))
    question, answer = f"{nonce}question", f"{nonce}answer"
    header = _header(render, [{"role": "user", "content": question}], answer)
    if header is None:
        return None
    plain = Splicing((header,), ends, nonce, calls=False)
    asked: list[Message] = [{"role": "user", "content": "Qzquestion"}]
    if not _returns(plain, render, asked, {"role": "assistant", "content": "Qzanswer"}, asked):
        return None
    call, result = _call("qz"), {"role": "tool", "content": question, "tool_call_id": "qzcall001", "name": "qz"}
    called: Message = {"role": "assistant", "content": "Qzanswer", "tool_calls": [call]}
    after_result = _header(render, [*asked, called, result], answer)
    if after_result is None:
        return plain
    both = replace(
        plain,
        headers=tuple(dict.fromkeys((header, after_result))),
        calls=True,
        shows_ids=_shows_ids(render, [*asked, called, result]),
    )
    returned: list[Message] = [{**result, "content": "Qzresult"}]
    return both if _returns(both, render, asked, called, returned) else plain


def _header(render: Render, before: Sequence[Message], answer: str) -> str | None:
    """What stands behind the content of the last of these messages whether an answer is opened or comes back. None
    when nothing does, or something else is in the way. `answer`: letters and digits that stand for one."""
    content = before[-1]["content"]
    following: Message = {"role": "user", "content": "Qznext"}
    try:
        opened = render(before, True)
        answered = render([*before, {"role": "assistant", "content": answer}, following], True)
    except RequestError:
        return None
    at = opened.rfind(content) + len(content)
    if content not in opened or answer not in answered[at:] or answered[:at] != opened[:at]:
        return None
    header = _common(answered[at : answered.index(answer, at)], opened[at:])
    return header if header.strip() else None


def _returns(
    splicing: Splicing, render: Render, before: Sequence[Message], answer: Message, after: Sequence[Message]
) -> bool:
    """Whether the template's own words, put back by these rules, give what it writes."""
    mark = splicing.mark(0)
    try:
        own = render([*before, answer, *after], True)
        text = render([*before, splicing.stand_in(answer, mark), *after], True)
    except RequestError:
        return False
    place = splicing.place(text, mark, 0)
    if place is None:
        return False
    head, tail = text[: place[0]], text[place[1] :]
    if not (own.startswith(head) and own.endswith(tail)) or len(own) < len(head) + len(tail):
        return False
    words = own[len(head) : len(own) - len(tail)]
    return splicing.put_back(text, [Splice(mark, words)]) == own


def _shows_ids(render: Render, called: Sequence[Message]) -> bool:
    """`called`: ends with an answer that calls, and the result."""
    *before, answer, result = called
    (call,) = answer["tool_calls"]
    other = "qzcall002"
    renamed = [*before, {**answer, "tool_calls": [{**call, "id": other}]}, {**result, "tool_call_id": other}]
    try:
        return render(called, True) != render(renamed, True)
    except RequestError:
        return True


def _call(name: str) -> dict[str, Any]:
    return {"id": "qzcall001", "type": "function", "function": {"name": name, "arguments": '{"qz": "1"}'}}


def _stand_in_call(call: Any, mark: str) -> Any:
    name = None
    if isinstance(call, Mapping):
        inner = call.get(str(call.get("type", "function")))
        name = inner.get("name") if isinstance(inner, Mapping) else None
    function = {"name": name or mark, "arguments": json.dumps({mark: mark})}
    return {"id": call.get("id", mark) if isinstance(call, Mapping) else mark, "type": "function", "function": function}


def _common(first: str, second: str) -> str:
    """The beginning that both have."""
    for at, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return first[:at]
    return first[: min(len(first), len(second))]
