"""Outputs written by hand: what models do beside the rule, and what looks like a call but is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from samovar.text.answer import Answer, Call
from tests.text.formats.grammar import Case

LONG = "mcp__a_server_with_a_long_name__" + "and_a_tool_with_a_longer_one_" * 2
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "i": {"type": "integer"},
        "b": {"type": "boolean"},
        "n": {"type": ["string", "null"]},
        "u": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "r": {"$ref": "#/$defs/Color"},
        "o": {"type": "object"},
    },
    "$defs": {"Color": {"enum": ["red", "1"]}},
}


@dataclass(frozen=True)
class Edge:
    family: str
    name: str
    case: Case


def _edge(family: str, name: str, text: str, shown: str = "", calls: Sequence[tuple[str, ...]] = ()) -> Edge:
    answer = Answer(shown, "", tuple(Call(*call) for call in calls))
    return Edge(family, name, Case(family, text, answer, {"f": SCHEMA}))


def _none(family: str, name: str, text: str) -> Edge:
    """An output that is nothing but text."""
    return _edge(family, name, text, text)


_DS_BEGIN, _DS_CALL, _DS_SEP = "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"
_DS_CALL_END, _DS_END = "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"
_K2_BEGIN, _K2_CALL, _K2_SEP = "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>"
_K2_CALL_END, _K2_END = "<|tool_call_end|>", "<|tool_calls_section_end|>"

EDGES = (
    # Hermes
    _edge("hermes", "compact", '<tool_call>{"name":"f","arguments":{}}</tool_call>', "", [("f", "{}")]),
    _edge("hermes", "no arguments", '<tool_call>\n{"name": "f"}\n</tool_call>', "", [("f", "{}")]),
    _edge("hermes", "null arguments", '<tool_call>{"name": "f", "arguments": null}</tool_call>', "", [("f", "{}")]),
    _edge(
        "hermes",
        "arguments as a string",
        '<tool_call>\n{"name": "f", "arguments": "{\\"a\\": \\"\\\\u00e9 \\ud83d\\ude00 \\\\n\\"}"}\n</tool_call>',
        "",
        [("f", '{"a": "\\u00e9 😀 \\n"}')],
    ),
    _edge(
        "hermes",
        "name last",
        '<tool_call>{"parameters": {"name": "x", "a": [[1], {"b": "}"}]}, "name": "f"}</tool_call>',
        "",
        [("f", '{"name": "x", "a": [[1], {"b": "}"}]}')],
    ),
    _edge(
        "hermes",
        "an id of its own",
        '<tool_call>{"id": "call_7", "type": "function", "name": "f", "arguments": {}}</tool_call>',
        "",
        [("f", "{}", "call_7")],
    ),
    _edge(
        "hermes",
        "an array",
        '<tool_call>[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]</tool_call>',
        "",
        [("f", '{"a": 1}'), ("g", "{}")],
    ),
    _edge(
        "hermes",
        "two in one tag",
        '<tool_call>\n{"name": "f", "arguments": {}}\n{"name": "g", "arguments": {}}\n</tool_call>',
        "",
        [("f", "{}"), ("g", "{}")],
    ),
    _edge(
        "hermes",
        "a bracket missing",
        '<tool_call>\n{"name": "f", "arguments": {"a": {"b": 1}\n</tool_call>\nDone',
        "\nDone",
        [("f", '{"a": {"b": 1}\n')],
    ),
    _edge("hermes", "a bracket too many", '<tool_call>{"name": "f", "arguments": {}}}}</tool_call>', "", [("f", "{}")]),
    _edge("hermes", "no closing tag", 'A\n<tool_call>{"name": "f", "arguments": {}}\nB', "A\nB", [("f", "{}")]),
    _edge(
        "hermes",
        "raw line break in a string",
        '<tool_call>{"name": "f", "arguments": {"a": "1\n2</tool_call>"}}</tool_call>',
        "",
        [("f", '{"a": "1\n2</tool_call>"}')],
    ),
    _edge(
        "hermes",
        "junk after the arguments",
        '<tool_call>{"name": "f", "arguments": {}, oops}</tool_call>',
        "oops}</tool_call>",
        [("f", "{}")],
    ),
    _edge(
        "hermes",
        "blank lines around",
        '\n\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n\n',
        "",
        [("f", "{}")],
    ),
    _edge(
        "hermes",
        "blank lines before text and call",
        '\n\nHm.\n\n<tool_call>{"name": "f", "arguments": {}}</tool_call>',
        "\n\nHm.\n",
        [("f", "{}")],
    ),
    _edge(
        "hermes",
        "long name",
        f'<tool_call>{{"name": "{LONG}", "arguments": {{}}}}</tool_call>',
        "",
        [(LONG, "{}")],
    ),
    _none("hermes", "the tag in prose", "Write <tool_call> to call, </tool_call> to end; <tool"),
    _none("hermes", "without a name", '<tool_call>\n{"arguments": {"a": 1}}\n</tool_call>'),
    _none("hermes", "a name that is a number", '<tool_call>{"name": 7, "arguments": {}}</tool_call>'),
    _none("hermes", "a cut name", '<tool_call>\n{"name": "get_w'),
    _none("hermes", "an empty array", "<tool_call>[]</tool_call>"),
    _none("hermes", "white space only", " \n\n "),
    # Llama
    _edge(
        "llama3_json",
        "tag and semicolons",
        '<|python_tag|>{"name": "f", "parameters": {"a": ";"}}; {"name": "g", "parameters": {}};',
        "",
        [("f", '{"a": ";"}'), ("g", "{}")],
    ),
    _edge(
        "llama3_json",
        "pretty, typed",
        '{\n  "type": "function",\n  "name": "f",\n  "parameters": {\n    "a": 1\n  }\n}',
        "",
        [("f", '{\n    "a": 1\n  }')],
    ),
    _edge("llama3_json", "known, no arguments", '{"name": "f"}', "", [("f", "{}")]),
    _edge("llama3_json", "after a line", 'Sure:\n{"name": "f", "arguments": {}}\nOk', "Sure:\nOk", [("f", "{}")]),
    _none("llama3_json", "a JSON answer", '{"name": "Bo", "age": 7,\n{"name": "f", "parameters": {}}}'),
    _none("llama3_json", "a JSON answer with a name", '{"name": "Bo"}'),
    _none("llama3_json", "within a line", 'Use {"name": "f", "parameters": {}} for it'),
    _none("llama3_json", "code after the tag", '<|python_tag|>print("x")'),
    # Mistral
    _edge(
        "mistral",
        "single object",
        '[TOOL_CALLS] {"name": "f", "arguments": {"a": "[TOOL_CALLS]"}}',
        "",
        [("f", '{"a": "[TOOL_CALLS]"}')],
    ),
    _edge(
        "mistral",
        "ids",
        '[TOOL_CALLS][{"id": "abc123xyz", "name": "f", "arguments": {}}]',
        "",
        [("f", "{}", "abc123xyz")],
    ),
    _edge("mistral", "a broken array", '[TOOL_CALLS][{"name": "f", "arguments": {}} oops', " oops", [("f", "{}")]),
    _none("mistral", "an empty array", "[TOOL_CALLS][]"),
    _edge(
        "mistral_v11",
        "call ids",
        'A[TOOL_CALLS]f[CALL_ID]abc[ARGS]{"a": "[ARGS]"}[TOOL_CALLS]g{"b": 1}',
        "A",
        [("f", '{"a": "[ARGS]"}', "abc"), ("g", '{"b": 1}')],
    ),
    _edge("mistral_v11", "no arguments", "[TOOL_CALLS]f[ARGS] so", " so", [("f", "{}")]),
    _none("mistral_v11", "no separator", "[TOOL_CALLS]f and some more text " + "and more " * 40),
    # DeepSeek, Kimi
    _edge(
        "deepseek_v3",
        "no fence",
        f'{_DS_BEGIN}{_DS_CALL}function{_DS_SEP}f\n{{"a": 1}}{_DS_CALL_END}{_DS_END} Hm',
        " Hm",
        [("f", '{"a": 1}')],
    ),
    _none("deepseek_v3", "cut before the name ends", f"{_DS_BEGIN}{_DS_CALL}function{_DS_SEP}get_w"),
    _edge(
        "deepseek_v31",
        "a tool called function",
        f'{_DS_BEGIN}{_DS_CALL}function{_DS_SEP}{{"a": 1}}{_DS_CALL_END}{_DS_END}',
        "",
        [("function", '{"a": 1}')],
    ),
    _edge(
        "deepseek_v31",
        "no section, bracket missing",
        f'{_DS_CALL}f{_DS_SEP}{{"a": {{"b": "{_DS_CALL_END}"}}{_DS_CALL_END}',
        "",
        [("f", f'{{"a": {{"b": "{_DS_CALL_END}"}}')],
    ),
    _none("deepseek_v31", "an empty section", f"{_DS_BEGIN}{_DS_END}"),
    _edge(
        "kimi_k2",
        "the second is faulty",
        f"{_K2_BEGIN}{_K2_CALL}functions.f:0{_K2_SEP}{{}}{_K2_CALL_END}{_K2_CALL}g{_K2_CALL_END}{_K2_END}",
        f"{_K2_CALL}g{_K2_CALL_END}{_K2_END}",
        [("f", "{}", "functions.f:0")],
    ),
    _edge(
        "kimi_k2",
        "no prefix, cut",
        f'{_K2_BEGIN}{_K2_CALL}a.b:12{_K2_SEP}{{"x": "<|tool',
        "",
        [("a.b", '{"x": "<|tool', "a.b:12")],
    ),
    # GLM, Qwen3-Coder
    _edge(
        "glm45",
        "typed by the schema",
        "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>12</arg_value>\n<arg_key>i</arg_key><arg_value>12</arg_value>"
        "<arg_key>u</arg_key><arg_value>007</arg_value><arg_key>n</arg_key><arg_value>null</arg_value>"
        "<arg_key>r</arg_key><arg_value>1</arg_value><arg_key>x</arg_key><arg_value>[1, 2]</arg_value></tool_call>",
        "",
        [("f", '{"s": "12", "i": 12, "u": "007", "n": null, "r": "1", "x": [1, 2]}')],
    ),
    _edge(
        "glm45",
        "digits where a string may stand",
        "<tool_call>f<arg_key>u</arg_key><arg_value>12</arg_value></tool_call>",
        "",
        [("f", '{"u": "12"}')],
    ),
    _edge("glm45", "no arguments on one line", "<tool_call>g</tool_call>", "", [("g", "{}")]),
    _edge(
        "glm45",
        "the object stays open",
        "<tool_call>f\n<arg_key>i</arg_key><arg_value>1</arg_value>\n<arg",
        "",
        [("f", '{"i": 1')],
    ),
    _edge(
        "glm45",
        "a faulty key",
        "<tool_call>f\n<arg_key>i</arg_value>1</tool_call>",
        "<arg_key>i</arg_value>1</tool_call>",
        [("f", "{}")],
    ),
    _none("glm45", "prose", "Say <tool_call>hello there"),
    _edge(
        "qwen3_coder",
        "typed by the schema",
        "<tool_call>\n<function=f>\n<parameter=b>\nTrue\n</parameter>\n<parameter=o>\n{'a': 1}\n</parameter>\n"
        "<parameter=s>\n\nx\n\n</parameter>\n<parameter=i>\ntwo\n</parameter>\n</function>\n</tool_call>",
        "",
        [("f", '{"b": true, "o": "{\'a\': 1}", "s": "\\nx\\n", "i": "two"}')],
    ),
    _edge(
        "qwen3_coder", "JSON after all", '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', "", [("f", "{}")]
    ),
    _edge("qwen3_coder", "one line", "<function=f><parameter=s>x</parameter></function>", "", [("f", '{"s": "x"}')]),
    _edge(
        "qwen3_coder",
        "the object stays open",
        "<function=f>\n<parameter=s>\nx\n</parameter>\n",
        "",
        [("f", '{"s": "x"')],
    ),
    _edge("qwen3_coder", "cut in a value", "<function=f>\n<parameter=s>\nx\n</para", "", [("f", '{"s": "x\\n</para')]),
    _edge(
        "qwen3_coder",
        "a tag that nothing follows for long",
        f"<function=f><parameter=s>x</parameter>{' ' * 300}</function></parameter></function>",
        "",
        [("f", f'{{"s": "x</parameter>{" " * 300}</function>"}}')],
    ),
    _none("qwen3_coder", "a cut name", "<tool_call>\n<function=get_w"),
    # Pythonic
    _edge(
        "pythonic",
        "literals",
        '[f(a=\'it\\\'s\', b="""x"y\n""", c=(1, 2,), d={\'k\': None, 2: [True, false]}, e=-1.5,'
        " g=abc, h='\\x41\\u00e9'),\n m.g()]",
        "",
        [
            (
                "f",
                '{"a": "it\'s", "b": "x\\"y\\n", "c": [1, 2], "d": {"k": null, "2": [true, false]}, "e": -1.5, '
                '"g": "abc", "h": "Aé"}',
            ),
            ("m.g", "{}"),
        ],
    ),
    _edge("pythonic", "cut in a string", "[f(a='x", "", [("f", '{"a": "x')]),
    _edge("pythonic", "faulty second", '[f(a=1), g("x")]', ', g("x")]', [("f", '{"a": 1}')]),
    _edge("pythonic", "an expression as value", "[f(a=1 + 2)]", "+ 2)]", [("f", '{"a": 1')]),
    _edge("pythonic", "brackets without end", "[f(a=" + "[" * 1500, "[" * 1436, [("f", '{"a": ' + "[" * 64)]),
    _edge("pythonic", "a second argument without a name", "[f(a=1, x)]", ", x)]", [("f", '{"a": 1')]),
    _none("pythonic", "a link", "[text](http://x)"),
    _none("pythonic", "a comprehension", "[f(x) for x in y]"),
    _none("pythonic", "a list", "[1, 2]"),
    _none("pythonic", "within a line", "So [f(a=1)]"),
)
