"""How a family spells calls, exactly, for grammars that make a model write nothing else.

An answer of calls is  section_begin call (separator call)* section_end , and a call is
begin NAME (numbered N)? middle ARGUMENTS end : NAME the tool's name as it is, ARGUMENTS one JSON object, N the call's
number counting from 0 (only where `numbered` is not empty).

Parsers accept more than this; this is the spelling that the family's chat templates use for past calls, so that what a
grammar forces is what a template renders again.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallSyntax:
    begin: str
    middle: str
    end: str
    separator: str
    """Between two calls."""
    section_begin: str = ""
    section_end: str = ""
    numbered: str = ""
    """Text that precedes the number of a call, directly after the name: ":" for "get_time:0"."""
    trigger: str = ""
    """Once this stands in free text, a call has begun: a prefix of `section_begin + begin`. Empty where no text marks a
    call beforehand, because calls are bare JSON."""


HERMES = CallSyntax(
    begin='<tool_call>\n{"name": "',
    middle='", "arguments": ',
    end="}\n</tool_call>",
    separator="\n",
    trigger="<tool_call>",
)
LLAMA3 = CallSyntax(begin='{"name": "', middle='", "parameters": ', end="}", separator="; ")
MISTRAL = CallSyntax(
    section_begin="[TOOL_CALLS][",
    begin='{"name": "',
    middle='", "arguments": ',
    end="}",
    separator=", ",
    section_end="]",
    trigger="[TOOL_CALLS]",
)
MISTRAL_V11 = CallSyntax(begin="[TOOL_CALLS]", middle="[ARGS]", end="", separator="", trigger="[TOOL_CALLS]")
DEEPSEEK_V3 = CallSyntax(
    section_begin="<｜tool▁calls▁begin｜>",
    begin="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    middle="\n```json\n",
    end="\n```<｜tool▁call▁end｜>",
    separator="\n",
    section_end="<｜tool▁calls▁end｜>",
    trigger="<｜tool▁calls▁begin｜>",
)
DEEPSEEK_V31 = CallSyntax(
    section_begin="<｜tool▁calls▁begin｜>",
    begin="<｜tool▁call▁begin｜>",
    middle="<｜tool▁sep｜>",
    end="<｜tool▁call▁end｜>",
    separator="",
    section_end="<｜tool▁calls▁end｜>",
    trigger="<｜tool▁calls▁begin｜>",
)
KIMI_K2 = CallSyntax(
    section_begin="<|tool_calls_section_begin|>",
    begin="<|tool_call_begin|>functions.",
    numbered=":",
    middle="<|tool_call_argument_begin|>",
    end="<|tool_call_end|>",
    separator="",
    section_end="<|tool_calls_section_end|>",
    trigger="<|tool_calls_section_begin|>",
)
