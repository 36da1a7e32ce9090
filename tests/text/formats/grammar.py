"""Outputs of every family made from random answers: what each parser must give back is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
import json
import random
from typing import Any

from samovar.text.answer import Answer, Call
from samovar.text.formats.syntax import CallSyntax
from samovar.text.formats.table import FORMATS

NASTY = (
    *("</tool_call>", "<tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|tool_call_end|>", "<｜tool▁call▁end｜>", "</think>"),
    *("```", "</arg_value>", "</parameter>", "<|python_tag|>", '{"name": "f", "arguments": {}}', "[f(a=1)]"),
    *("}}]]", "{[", 'say "hi" \\ twice \\\\', "it's", "123", "1e5", "007", "true", "null", "", " ", "a;b", "x, y)"),
    *("line\nbreak\r\n\ttab\n", "🙂é\u2028", "\x00\x1b[0m", "𝒳" * 9, "<", "[", "\\u0041", "'''", '"""'),
)
NAMES = ("f", "get_weather", "mcp__server__" + "x" * 60, "mcp-a.b", "été")
PROSE = (
    "Let me look",
    "a < b",
    "<tool",
    "see [TOOL",
    "x {y}",
    "`code`",
    "5 ]",
    "back\\slash",
    "🙂 é",
    "<｜tool",
    "end;",
)
WITHOUT_TEXT_AFTER = ("llama3_json", "pythonic")


@dataclass(frozen=True)
class Case:
    family: str
    text: str
    answer: Answer
    schemas: dict[str, dict[str, Any]]


def make_case(family: str, seed: int) -> Case:
    rng = random.Random(f"{family} {seed}")
    objects = [(rng.choice(NAMES), _arguments(rng)) for _ in range(rng.randint(0, 4))]
    schemas = {name: _schema(arguments) for name, arguments in objects}
    # One schema per name: a later call of the same tool has arguments of its own.
    objects = [(name, arguments) for name, arguments in objects if _schema(arguments) == schemas[name]]
    prose = _prose(rng) if rng.random() < 0.7 else ""
    joint = FORMATS[family].joint if prose and objects else ""
    after = "\n" + _prose(rng) if objects and rng.random() < 0.5 else ""
    syntax = FORMATS[family].syntax
    if syntax is not None:
        written = [_json(rng, arguments) for _, arguments in objects]
        names = [name for name, _ in objects]
        text = spelt(syntax, list(zip(names, written, strict=True))) if objects else ""
    else:
        written = [json.dumps(arguments, ensure_ascii=False) for _, arguments in objects]
        text = _OTHERS[family](rng, objects) if objects else ""
    calls = tuple(
        Call(name, arguments, f"functions.{name}:{at}" if family == "kimi_k2" else None)
        for at, ((name, _), arguments) in enumerate(zip(objects, written, strict=True))
    )
    return Case(family, prose + joint + text + after, Answer(prose + after, "", calls), schemas)


def spelt(syntax: CallSyntax, calls: Sequence[tuple[str, str]]) -> str:
    """Calls (name, arguments) as `syntax` describes them."""
    texts = [
        syntax.begin
        + name
        + (f"{syntax.numbered}{at}" if syntax.numbered else "")
        + syntax.middle
        + arguments
        + syntax.end
        for at, (name, arguments) in enumerate(calls)
    ]
    return syntax.section_begin + syntax.separator.join(texts) + syntax.section_end


def _prose(rng: random.Random) -> str:
    # No line of it begins like a call of the families whose calls have no markers.
    return rng.choice(("Ok: ", "é ", "1. ")) + " ".join(rng.choices(PROSE, k=rng.randint(1, 4)))


def _arguments(rng: random.Random) -> dict[str, Any]:
    keys = rng.sample(("path", "content", "n", "über", "list", "a_b"), rng.randint(0, 4))
    return {key: _value(rng, 2) for key in keys}


def _value(rng: random.Random, depth: int) -> Any:
    kind = rng.randint(0, 9 if depth else 7)
    if kind <= 4:
        return rng.choice(NASTY)
    if kind == 5:
        return rng.choice((0, -7, 12.5, 10**20))
    if kind == 6:
        return rng.choice((True, False))
    if kind == 7:
        return None
    if kind == 8:
        return [_value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(NASTY): _value(rng, depth - 1) for _ in range(rng.randint(0, 2))}


def _schema(arguments: dict[str, Any]) -> dict[str, Any]:
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    properties = {key: {"type": kinds.get(type(value), "null")} for key, value in arguments.items()}
    return {"type": "object", "properties": properties}


def _json(rng: random.Random, arguments: dict[str, Any]) -> str:
    indent = rng.choice((None, None, 1))
    separators = rng.choice(((",", ":"), (", ", ": ")))
    return json.dumps(arguments, ensure_ascii=rng.random() < 0.3, indent=indent, separators=separators)


def _tagged_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _glm(rng: random.Random, calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    def one(name: str, arguments: dict[str, Any]) -> str:
        pairs = [
            f"<arg_key>{key}</arg_key>\n<arg_value>{_tagged_value(value)}</arg_value>\n"
            for key, value in arguments.items()
        ]
        return f"<tool_call>{name}\n{''.join(pairs)}</tool_call>"

    return rng.choice(("\n", "")).join(one(*call) for call in calls)


def _qwen_coder(rng: random.Random, calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    def one(name: str, arguments: dict[str, Any]) -> str:
        pairs = [
            f"<parameter={key}>\n{str(value) if value is None or isinstance(value, bool) else _tagged_value(value)}\n"
            "</parameter>\n"
            for key, value in arguments.items()
        ]
        function = f"<function={name}>\n{''.join(pairs)}</function>"
        return function if rng.random() < 0.2 else f"<tool_call>\n{function}\n</tool_call>"

    return "\n".join(one(*call) for call in calls)


def _pythonic(rng: random.Random, calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    def one(name: str, arguments: dict[str, Any]) -> str:
        return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"

    text = f"[{rng.choice((', ', ',')).join(one(*call) for call in calls)}]"
    return f"<|python_start|>{text}<|python_end|>" if rng.random() < 0.2 else text


_OTHERS = {"glm45": _glm, "qwen3_coder": _qwen_coder, "pythonic": _pythonic}
