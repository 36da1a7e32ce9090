"""All formats of tool calls by name, and which of them a chat template is written for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from samovar.text.answer import OutputParser
from samovar.text.formats import deepseek, glm, hermes, kimi, llama, mistral, pythonic, qwen_coder, syntax
from samovar.text.formats.machine import Family, Machine
from samovar.text.formats.syntax import CallSyntax

Schemas: TypeAlias = Mapping[str, Mapping[str, Any]]
"""JSON schemas of the arguments, by the tools' names as the model sees them."""


@dataclass(frozen=True, slots=True)
class ToolFormat:
    name: str
    family: Callable[[Schemas], Family]
    markers: tuple[str, ...] = ()
    """Texts that the parser needs although they may be special tokens, which are not shown otherwise."""
    syntax: CallSyntax | None = None
    """None: arguments are not JSON, or calls have no one spelling, so a grammar cannot force them."""
    joint: str = ""
    """What templates of the family put between text and the first call."""

    def make(self, schemas: Schemas) -> OutputParser:
        """A parser of one output."""
        return Machine(self.family(schemas), self.joint)


def _simple(family: Family) -> Callable[[Schemas], Family]:
    return lambda schemas: family


_TAGS = (hermes.BEGIN, hermes.END)
_HERMES = ToolFormat("hermes", _simple(hermes.hermes), _TAGS, syntax.HERMES, "\n")
_LLAMA3 = ToolFormat(
    "llama3_json", lambda schemas: partial(llama.llama, known=frozenset(schemas)), (llama.TAG,), syntax.LLAMA3, "\n"
)
_MISTRAL_MARKERS = (mistral.BEGIN, mistral.ARGUMENTS, mistral.CALL_ID)
_MISTRAL = ToolFormat("mistral", _simple(mistral.mistral), _MISTRAL_MARKERS, syntax.MISTRAL)
_MISTRAL_V11 = ToolFormat("mistral_v11", _simple(mistral.mistral), _MISTRAL_MARKERS, syntax.MISTRAL_V11)
_DEEPSEEK = _simple(deepseek.deepseek)
_DEEPSEEK_V3 = ToolFormat("deepseek_v3", _DEEPSEEK, deepseek.MARKERS.texts, syntax.DEEPSEEK_V3)
_DEEPSEEK_V31 = ToolFormat("deepseek_v31", _DEEPSEEK, deepseek.MARKERS.texts, syntax.DEEPSEEK_V31)
_KIMI = ToolFormat("kimi_k2", _simple(kimi.kimi), kimi.MARKERS.texts, syntax.KIMI_K2)
_GLM = ToolFormat("glm45", lambda schemas: partial(glm.glm, schemas=schemas), glm.MARKERS, None, "\n")
_QWEN_CODER = ToolFormat(
    "qwen3_coder", lambda schemas: partial(qwen_coder.qwen_coder, schemas=schemas), _TAGS, None, "\n"
)
_PYTHONIC = ToolFormat("pythonic", _simple(pythonic.pythonic), (*pythonic.BEGINS, *pythonic.ENDS), None, "\n")

FORMATS: Mapping[str, ToolFormat] = {
    **{
        format.name: format
        for format in (
            _HERMES,
            _LLAMA3,
            _MISTRAL,
            _MISTRAL_V11,
            _DEEPSEEK_V3,
            _DEEPSEEK_V31,
            _KIMI,
            _GLM,
            _QWEN_CODER,
            _PYTHONIC,
        )
    },
    "qwen3_xml": _QWEN_CODER,
    "llama4_json": _LLAMA3,
    "llama4_pythonic": _PYTHONIC,
}
"""By the names that --tool-call-parser takes: vLLM's where it has one."""

# What only one family's templates contain; of several, the first that applies.
_SIGNS: tuple[tuple[tuple[str, ...], ToolFormat], ...] = (
    (("<|tool_call_begin|>",), _KIMI),
    (("<｜tool▁sep｜>", "```json"), _DEEPSEEK_V3),
    (("<｜tool▁sep｜>",), _DEEPSEEK_V31),
    (("[TOOL_CALLS]", "[ARGS]"), _MISTRAL_V11),
    (("[TOOL_CALLS]",), _MISTRAL),
    (("<arg_key>",), _GLM),
    (("<function=", "<parameter="), _QWEN_CODER),
    (("<tool_call>",), _HERMES),
    (("<|tool_call_start|>",), _PYTHONIC),
    (("<|python_start|>",), _PYTHONIC),
    (("func_name1(",), _PYTHONIC),
    (("<|python_tag|>",), _LLAMA3),
    (('"parameters": ',), _LLAMA3),
)


def detect(template_source: str) -> str | None:
    """The format that a chat template is written for; None when it reads no tools, or those of an unknown family."""
    if "tools" not in template_source:
        return None
    for signs, format in _SIGNS:
        if all(sign in template_source for sign in signs):
            return format.name
    return None
