"""What an answer may be, and how it is read: constraint and parser of a conversation's output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from samovar.base.errors import InvalidField
from samovar.base.keys import TOKEN_BYTES, unpack_tokens
from samovar.serve.bodies import CompletionBody, GenerationBody
from samovar.serve.conversation import Conversation, OutputShape, Tool
from samovar.text.answer import AnswerEvent, OutputParser, TextDelta
from samovar.text.formats.custom import CustomInputs
from samovar.text.formats.reasoning import ReasoningFormat
from samovar.text.formats.table import ToolFormat
from samovar.text.grammar.body import Body, Reasoning, grammar_of
from samovar.text.grammar.calls import ToolRule, free_with_calls, required_calls
from samovar.text.grammar.compiler import GrammarCompiler
from samovar.text.grammar.schema import json_object, json_schema
from samovar.text.grammar.structured import GUIDED, guided, response_format, structured_outputs
from samovar.text.tokenizer import Tokenizer

_TAIL_TOKENS = 32
"""Of a prompt, to see whether it ends inside a reasoning block."""


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """How one conversation's outputs are generated and read."""

    parser: Callable[[], OutputParser]
    """A new one for each choice."""
    grammar: str = ""
    """As in `core.sampling`."""
    markers: frozenset[int] = frozenset()
    """Special tokens that the parser needs to see."""


class PlainParser:
    """Everything is text."""

    def push(self, text: str) -> list[AnswerEvent]:
        return [TextDelta(text)] if text else []

    def finish(self) -> list[AnswerEvent]:
        return []


class Outputs:
    """May be used from several threads."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        tool_format: ToolFormat,
        reasoning: ReasoningFormat | None,
        compiler: GrammarCompiler,
    ) -> None:
        self._tokenizer = tokenizer
        self._format = tool_format
        self._reasoning = reasoning
        self._compiler = compiler
        self._special = {
            tokenizer.token_bytes(token).decode("utf-8", "replace"): token for token in tokenizer.special_ids
        }

    def of(self, conversation: Conversation, body: GenerationBody, prompt: bytes) -> OutputPlan:
        """`prompt`: its packed ids. Raises InvalidField for a constraint that cannot be held."""
        opened = self._opened(prompt)
        tools = conversation.tools if conversation.tool_choice.mode != "none" else ()
        texts = (*(self._format.markers if tools else ()), *(self._reasoning.markers if self._reasoning else ()))
        return OutputPlan(
            partial(self._parser, {tool.name: tool.parameters for tool in tools}, _custom(tools), opened),
            self._grammar(conversation, body, tools, opened),
            frozenset(self._special[text] for text in texts if text in self._special),
        )

    def grammar_of(self, body: CompletionBody) -> str:
        """Of a completion, which is text."""
        wanted = _asked(body)
        if body.response_format is not None:
            wanted = response_format(body.response_format.model_dump(exclude_none=True)) or wanted
        return "" if wanted is None else self._checked(wanted, None, "structured_outputs")

    def _parser(
        self, schemas: Mapping[str, Mapping[str, object]], custom: frozenset[str], opened: bool
    ) -> OutputParser:
        parser: OutputParser = self._format.make(schemas) if schemas else PlainParser()
        if custom:
            parser = CustomInputs(parser, custom)
        return parser if self._reasoning is None else self._reasoning.make(parser, inside=opened)

    def _opened(self, prompt: bytes) -> bool:
        if self._reasoning is None:
            return False
        tail = unpack_tokens(prompt[-_TAIL_TOKENS * TOKEN_BYTES :])
        return self._reasoning.opened_by(self._tokenizer.decode(tail, skip_special_tokens=False))

    def _grammar(self, conversation: Conversation, body: GenerationBody, tools: tuple[Tool, ...], opened: bool) -> str:
        asked = _asked(body)
        wanted = asked or _shaped(conversation.shape)
        param = conversation.shape.path if asked is None else "structured_outputs"
        choice = conversation.tool_choice
        if choice.mode == "required":
            named = [tool for tool in tools if choice.name in (None, tool.name)]
            return self._checked(self._calls(named, conversation), self._first(opened), "tool_choice")
        if tools and wanted is not None:
            calls = self._calls(tools, conversation, param)
            both = Body(
                f"({calls.expression} | {wanted.expression})",
                (*calls.rules, *wanted.rules),
                {**(calls.named or {}), **(wanted.named or {})} or None,
                (*calls.parts, *wanted.parts),
            )
            return self._checked(both, self._first(opened), param)
        if wanted is not None:
            return self._checked(wanted, self._first(opened), param)
        bound = any(tool.strict for tool in tools) or not conversation.parallel_calls
        if not tools or self._format.syntax is None or not bound:
            return ""
        free = free_with_calls(self._format.syntax, _rules(tools), self._special, parallel=conversation.parallel_calls)
        return self._checked(free, self._first(opened), "tools")

    def _calls(self, tools: Sequence[Tool], conversation: Conversation, param: str = "tool_choice") -> Body:
        if self._format.syntax is None:
            raise InvalidField(
                f"{param}: calls cannot be forced in this model's format, {self._format.name}: its arguments are not "
                "JSON.",
                param=param,
            )
        return required_calls(self._format.syntax, _rules(tools), self._special, parallel=conversation.parallel_calls)

    def _first(self, opened: bool) -> Reasoning | None:
        """What may come before the constrained part."""
        found = self._reasoning
        return None if found is None else Reasoning(found.begin, found.end, opened)

    def _checked(self, body: Body, reasoning: Reasoning | None, param: str) -> str:
        grammar = grammar_of(body, self._special, reasoning)
        self._compiler.check(grammar, param)
        return grammar.text


def _custom(tools: tuple[Tool, ...]) -> frozenset[str]:
    return frozenset(tool.name for tool in tools if tool.custom)


def _rules(tools: Sequence[Tool]) -> list[ToolRule]:
    return [
        ToolRule(tool.name, tool.parameters or None, tool.path, strict=tool.strict, custom=tool.custom)
        for tool in tools
    ]


def _asked(body: GenerationBody) -> Body | None:
    """vLLM's own fields."""
    older = guided({name: getattr(body, name) for name in GUIDED})
    if body.structured_outputs is None:
        return older
    newer = structured_outputs(body.structured_outputs)
    if older is not None and newer is not None:
        other = next(name for name in GUIDED if getattr(body, name) is not None)
        raise InvalidField(f"structured_outputs: cannot be used together with {other}.", param="structured_outputs")
    return newer or older


def _shaped(shape: OutputShape) -> Body | None:
    if shape.kind == "text":
        return None
    if shape.kind == "json_object" or shape.schema is None:
        return json_object()
    return json_schema(shape.schema, strict=shape.strict, param=shape.path)
