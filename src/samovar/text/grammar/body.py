"""What an answer must be, as an expression of a grammar, and how it becomes the text that the engine compiles.

The text is llguidance's: JSON that holds one Lark grammar, whose `start` is the whole answer, and the grammars it
names. JSON schemas stand inside it as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import json

FREE_TEXT = r"/(.|\n)*/"
_SPACE = r"/[ \t\r\n]{1,8}/"


@dataclass(frozen=True, slots=True)
class Part:
    """A piece that a client wrote: when the whole does not compile, its parts are tried, to name the one at fault."""

    param: str
    """Path of the request field."""
    text: str
    """A grammar of its own."""


@dataclass(frozen=True, slots=True)
class Body:
    """`expression` may be used in a Lark rule beside `rules`, and names no rule that another body could have."""

    expression: str
    rules: tuple[str, ...] = ()
    named: Mapping[str, str] | None = None
    """Lark grammars that the expression refers to as `@name`."""
    parts: tuple[Part, ...] = ()
    takes_space: bool = False
    """Whether the expression may begin with white space by itself."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Free text that comes before what is constrained."""

    begin: str
    end: str
    opened: bool
    """The prompt already wrote `begin`; otherwise the block is the model's choice."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """`text` is what `core.sampling.SamplingParams.grammar` takes."""

    text: str
    parts: tuple[Part, ...] = ()


def grammar_of(body: Body, special: Mapping[str, int], reasoning: Reasoning | None = None) -> Grammar:
    """The grammar of a whole answer. `special`: ids of special tokens by their text, which no plain text matches."""
    rules = list(body.rules)
    start = body.expression
    if reasoning is not None:
        space = "" if body.takes_space else f"({_SPACE})? "
        rules += [
            f"reasoning: {_until(reasoning.end, special, 'reasoning_end', rules)}",
            f"answer: {body.expression}",
        ]
        block = "reasoning" if reasoning.opened else f"({spelled(reasoning.begin, special)} reasoning)?"
        start = f"{block} {space}answer"
    text = "\n".join([f"start: {start}", *rules])
    if body.named is None:
        return Grammar(_json([{"lark_grammar": text}]), body.parts)
    named = [{"name": name, "lark_grammar": lark} for name, lark in body.named.items()]
    return Grammar(_json([{"lark_grammar": text}, *named]), body.parts)


def _until(end: str, special: Mapping[str, int], name: str, rules: list[str]) -> str:
    """Free text up to and with `end`: lazily where `end` is text, so that the first one counts."""
    expression, lazy = until(end, special, name)
    rules += lazy
    return expression


def until(end: str, special: Mapping[str, int], name: str) -> tuple[str, list[str]]:
    """An expression for free text up to and with `end`, and the rules (called `name`...) it needs."""
    pieces = split_special(end, special)
    if len(pieces) == 1 and isinstance(pieces[0], str):
        return name, [f"{name}[lazy]: {name.upper()}_TEXT {quoted(end)}", f"{name.upper()}_TEXT: {FREE_TEXT}"]
    return f"({FREE_TEXT})? {spelled(end, special)}", []


def spelled(text: str, special: Mapping[str, int]) -> str:
    """An expression that matches exactly `text`, its special tokens as such; "" for ""."""
    pieces = split_special(text, special)
    return " ".join(quoted(piece) if isinstance(piece, str) else f"<[{piece}]>" for piece in pieces)


def split_special(text: str, special: Mapping[str, int]) -> list[str | int]:
    """`text` cut at the special tokens that stand in it: text, or the token's id. The longest token at the first place
    counts."""
    pieces: list[str | int] = []
    at = begin = 0
    by_length = sorted(special, key=len, reverse=True)
    while at < len(text):
        token = next((token for token in by_length if text.startswith(token, at)), None)
        if token is None:
            at += 1
            continue
        if begin < at:
            pieces.append(text[begin:at])
        pieces.append(special[token])
        at = begin = at + len(token)
    if begin < len(text):
        pieces.append(text[begin:])
    return pieces


def quoted(text: str) -> str:
    """A Lark string; Lark's escapes are JSON's."""
    return json.dumps(text, ensure_ascii=False)


def _json(grammars: Sequence[Mapping[str, str]]) -> str:
    return json.dumps({"grammars": grammars}, ensure_ascii=False, separators=(",", ":"))
