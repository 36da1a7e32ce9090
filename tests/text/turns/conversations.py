"""Random conversations, templates to render them with, and the long way from one to ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
import re
from typing import Any

from hypothesis import strategies as st

from samovar.base.keys import extend_keys, join_keys, unpack_tokens
from samovar.text.formats.canonical import canonical_tools
from samovar.text.formats.tool_prompt import with_tools
from samovar.text.messages import arrange, flatten
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer
from samovar.text.turns.reader import Turn, TurnPrompt
from samovar.text.turns.volatile import VolatileLines

BLOCK = 16
ROOT = b"root" * 4
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Qwen 3 in small: past reasoning only after the last question, blanks trimmed, calls as JSON, an answer that may begin
# with an empty reasoning block.
THINKING = (
    "{%- set ns = namespace(last=0) %}"
    "{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{%- if tools %}<|im_start|>system\n{{ messages[0].content if messages[0].role == 'system' }}"
    "{% for t in tools %}\n{{ t | tojson }}{% endfor %}<|im_end|>\n"
    "{%- elif messages[0].role == 'system' %}<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n{% endif %}"
    "{%- for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n"
    "{% if m.reasoning_content and loop.index0 > ns.last %}"
    "<think>\n{{ m.reasoning_content | trim }}\n</think>\n\n{% endif %}"
    "{{ m.content | trim }}{% for c in m.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
    "<|im_end|>\n{% elif m.role == 'tool' %}"
    "<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n"
    "{% elif m.role == 'user' or not loop.first %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
# Takes turns, knows no system, trims.
ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ '<|im_start|>' }}{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>model\n{% endif %}"
)
WITHOUT_TOKENS = (
    "{% for m in messages %}### {{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}### assistant: {% endif %}"
)
TEMPLATES = {"chatml": CHATML, "thinking": THINKING, "alternating": ALTERNATING, "without": WITHOUT_TOKENS}

_words = st.sampled_from(
    [
        *(
            "a",
            " ",
            "\r\n",
            "\n\n",
            "\x00",
            "é",
            "e\u0301",
            "👍\u200d",
            "日本",
            "\t",
            "  b",
            "12",
            "<|im_end|>",
            "<|im_start|>",
        ),
        *(
            "<|im_start|>assistant\n",
            "<|im_end|>\n<|im_start|>user\n",
            "<|im_",
            "<tool_call>",
            "</think>",
            "\ufffd",
            "\u2028",
        ),
        *("<|endoftext|>", "x-anthropic-billing-header: cch=1;", "\x1b[31m", '"', "\\", "{}", "qz", "<file_sep>"),
    ]
)
contents = st.one_of(
    st.lists(st.one_of(_words, st.text(st.characters(exclude_categories=["Cs"]), max_size=5)), max_size=8).map("".join),
    st.just(""),
)
_calls = st.lists(
    st.builds(
        lambda name, value: {"id": "call_1", "type": "function", "function": {"name": name, "arguments": value}},
        st.sampled_from(["f", "mcp__srv__tool"]),
        st.sampled_from(["{}", '{"b": 1, "a": "é"}', '{"a":"<|im_end|>"}', "not json"]),
    ),
    max_size=2,
)


@st.composite
def messages(draw: st.DrawFn) -> list[dict[str, Any]]:
    """System messages anywhere, answers with and without calls and reasoning, results, questions."""
    made: list[dict[str, Any]] = []
    if draw(st.booleans()):
        made.append({"role": "system", "content": draw(contents)})
    for _ in range(draw(st.integers(1, 4))):
        made.append({"role": "user", "content": draw(contents)})
        if draw(st.integers(0, 4)) == 0:
            made.append({"role": "system", "content": draw(contents)})
        answer: dict[str, Any] = {"role": "assistant", "content": draw(contents)}
        if draw(st.integers(0, 3)) == 0:
            answer["reasoning_content"] = draw(contents)
        calls = draw(_calls)
        if calls:
            answer["tool_calls"] = calls
        made.append(answer)
        made += [{"role": "tool", "tool_call_id": call["id"], "content": draw(contents)} for call in calls]
    made.append({"role": "user", "content": draw(contents)})
    return made


def tool(name: str = "f") -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "description": "Does.", "parameters": parameters}}


def text_of(template: ChatTemplate, turn: Turn) -> str:
    """Rendered as a whole, no answer put back."""
    flat: Sequence[Mapping[str, Any]] = VolatileLines().strip(flatten(turn.messages))
    tools: Sequence[Mapping[str, Any]] = canonical_tools(turn.tools)
    traits = template.traits(with_tools=bool(tools))
    if not traits.reads_tools:
        flat, tools = with_tools(flat, tools), []
    return template.write(
        arrange(flat, traits), tools=tools, add_generation_prompt=turn.add_generation_prompt,
        continue_final_message=turn.continue_final_message, extra=turn.variables,
    )  # fmt: skip


def long_way(tokenizer: Tokenizer, template: ChatTemplate, turn: Turn) -> list[int]:
    """What messages spell of special tokens is rendered as one odd character each. So the special tokens in the text
    are the template's own; what lies between them is encoded with none. Only where no token takes the space beside
    it."""
    words = [tokenizer.added_tokens[id].content for id in sorted(tokenizer.special_ids)]
    odd = {word: chr(0xF0000 + at) for at, word in enumerate(words)}
    either = re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)))
    said = _each_text(list(turn.messages), lambda text: either.sub(lambda found: odd[found[0]], text))
    text = text_of(template, replace(turn, messages=said))
    prefix, suffix = tokenizer.special_affixes if turn.add_special_tokens else ((), ())
    ids = [*prefix]
    for piece in re.split(f"({either.pattern})", text):
        if piece in odd:
            ids += tokenizer.encode(piece)
        elif piece:
            for word, character in odd.items():
                piece = piece.replace(character, word)
            ids += tokenizer.encode(piece, allow_special=False)
    return [*ids, *suffix]


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {change(key): _each_text(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_each_text(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def check_keys(prompt: TurnPrompt) -> None:
    assert prompt.keys == join_keys(extend_keys(ROOT, prompt.packed, BLOCK))


def ids_of(prompt: TurnPrompt) -> list[int]:
    check_keys(prompt)
    return unpack_tokens(prompt.packed)
