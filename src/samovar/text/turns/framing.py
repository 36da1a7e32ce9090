"""Which tokens a template frames messages with, found out by rendering some.

Most of them are called special by the tokenizer, and that is enough. Some checkpoints call theirs ordinary: DeepSeek's
`<｜User｜>` is one that is shown like any text, and opens a turn all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
import re
from typing import Any

from samovar.base.errors import RequestError
from samovar.text.messages import Message
from samovar.text.tokenizer import Tokenizer
from samovar.text.turns.controls import MARKERS, Framing
from samovar.text.turns.rendering import ANY_TOOL, Options, Rendering
from samovar.text.turns.splitting import any_of

_BRACKETED = re.compile(r"[<\[({|].+[>\])}|]")
"""Added tokens of another form are words or white space: what the model has a token for, not a sign."""
_ASKED: list[Message] = [{"role": "user", "content": "Qzquestion"}]
_GOES_ON: list[Message] = [{"role": "assistant", "content": "Qzanswer"}, {"role": "user", "content": "Qznext"}]
_SPOKEN: list[Message] = [{"role": "system", "content": "Qzsystem"}, *_ASKED, *_GOES_ON]
_CALL = {"id": "qzcall001", "type": "function", "function": {"name": "qz", "arguments": '{"qz": "1"}'}}
_CALLED: list[Message] = [
    *_ASKED,
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "content": "Qzresult", "tool_call_id": "qzcall001", "name": "qz"},
]


def framing_of(
    tokenizer: Tokenizer, plain: Rendering, with_tools: Rendering, markers: Collection[str] = MARKERS
) -> Framing:
    """`plain`, `with_tools`: how conversations without and with tools are rendered; `markers`: what a model writes in
    its answers, and so is no frame."""
    words = {
        token.content
        for token in tokenizer.added_tokens.values()
        if not token.special and _BRACKETED.fullmatch(token.content)
    }
    if not words:
        return Framing()
    pattern = re.compile(any_of(words))

    def written(rendering: Rendering, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> set[str]:
        try:
            return set(pattern.findall(rendering.write(messages, tools, Options({}), {})))
        except RequestError:
            return set()

    around = written(plain, _ASKED, []) | written(plain, _SPOKEN, [])
    results = [written(with_tools, messages, [ANY_TOOL]) for messages in (_CALLED, [*_CALLED, *_GOES_ON])]
    return Framing(frozenset(around - set(markers)), frozenset(around.union(*results)))
