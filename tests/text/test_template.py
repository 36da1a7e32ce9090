"""Chat templates: transformers' conventions, errors, bounds, continuation."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from samovar.base.errors import CheckpointError, InvalidField, RequestError
from samovar.text.checkpoint import TextParts
from samovar.text.template import ChatTemplate
from tests.text import templates

USER = [{"role": "user", "content": "hi"}]


def _template(source: str, **options: Any) -> ChatTemplate:
    return ChatTemplate({"default": source}, {"bos_token": "<s>"}, **options)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[0].content }}", "<s>hi"),
        ("{% for m in messages %}\n  {% if true %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}", "hi\n"),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "1"),
        ("a{% generation %}b{{ messages[0].content }}{% endgeneration %}c", "abhic"),
        ('{{ {"b": "<é\'&>", "a": 1} | tojson }}', '{"b": "<é\'&>", "a": 1}'),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{{ tools is none }}{{ documents is none }}", "TrueTrue"),
        ("{{ strftime_now is defined }}", "False"),
    ],
)
def test_transformers_conventions(source: str, text: str) -> None:
    assert _template(source).render(USER) == text


def test_the_clock_is_the_caller_s() -> None:
    template = _template("{{ strftime_now('%d %b %Y') }}", clock=lambda: datetime(2026, 2, 3))
    assert template.render(USER) == "03 Feb 2026"


def test_further_variables() -> None:
    template = _template("{% if enable_thinking is defined and not enable_thinking %}<no>{% endif %}")
    assert template.render(USER, extra={"enable_thinking": False}) == "<no>"
    assert template.render(USER) == ""


@pytest.mark.parametrize(
    "name", ["messages", "tools", "add_generation_prompt", "continue_final_message", "strftime_now"]
)
def test_what_the_server_sets_is_no_further_variable(name: str) -> None:
    with pytest.raises(InvalidField, match=f"{name}: is set by the server") as error:
        _template("x").render(USER, extra={"harmless": 1, name: []})
    assert error.value.param == f"chat_template_kwargs.{name}"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('only cats') }}", "only cats"),
        ("{{ messages[0].content.nope.nope }}", "has no attribute 'nope'"),
        ("{{ messages[0].content + 1 }}", "can only concatenate str"),
        ("{{ 1 // 0 }}", "division"),
        ("{{ messages[0].content | int + none }}", "unsupported operand"),
        ("{{ undefined_thing | tojson }}", "not JSON serializable"),
        ("{{ messages.append(1) }}", "not safely callable|unsafe|not safe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ range(1000000) | list }}", "(?i)range"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_a_template_s_failure_is_the_request_s_error(source: str, reason: str) -> None:
    with pytest.raises(InvalidField, match=reason) as error:
        _template(source).render(USER)
    assert error.value.param == "messages"
    assert error.value.status == 400


@pytest.mark.parametrize(
    "source", ["{% for %}", "{{ x | no_such_filter }}", "{% endfor %}", "{{ 'open", "{% generation %}"]
)
def test_a_template_that_does_not_compile_is_the_checkpoint_s(source: str) -> None:
    with pytest.raises(CheckpointError, match=r"model/x: template 'default' does not compile: line 1"):
        _template(source, origin="model/x")


def test_output_is_bounded() -> None:
    ticks = []
    template = _template("{% for i in range(5000) %}{{ tick(i) }}{% endfor %}", max_output_chars=1000)
    with pytest.raises(RequestError, match="exceed 1000 characters"):
        template.render(USER, extra={"tick": lambda i: ticks.append(i) or "ten chars."})
    assert len(ticks) < 200
    with pytest.raises(RequestError, match="exceed 1000 characters"):
        _template("{% for i in range(5000) %}{{ messages[0].content }}{% endfor %}", max_output_chars=1000).render(USER)


def test_named_templates() -> None:
    both = ChatTemplate({"default": "plain", "tool_use": "tools"}, {})
    assert both.render(USER) == "plain"
    assert both.render(USER, tools=[]) == "plain"
    assert both.render(USER, tools=[{}]) == "tools"
    assert ChatTemplate({"odd": "only"}, {}).render(USER, tools=[{}]) == "only"
    with pytest.raises(CheckpointError, match="no template named 'default'"):
        ChatTemplate({"a": "", "b": ""}, {})
    with pytest.raises(CheckpointError, match="no template named 'default'"):
        ChatTemplate({}, {})


def test_null_content_and_parts_reach_the_template_as_text() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None},
        {"role": "user"},
    ]
    expected = "<user>a\nb</user><assistant></assistant><user></user><assistant>"
    assert _template(templates.PLAIN).render(messages) == expected


def test_messages_merge_only_where_the_template_needs_it() -> None:
    messages = [*USER, {"role": "user", "content": "there"}]
    assert _template(templates.ALTERNATING).render(messages) == "[user]hi\n\nthere[model]"
    assert _template(templates.PLAIN).render(messages) == "<user>hi</user><user>there</user><assistant>"
    with pytest.raises(InvalidField, match="roles must alternate"):
        _template(templates.ALTERNATING).render([{"role": "assistant", "content": "x"}])


def test_tool_calls_take_the_form_the_template_reads() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": "ü"}'}}
    messages: list[dict[str, Any]] = [*USER, {"role": "assistant", "content": "", "tool_calls": [call]}]
    assert _template(templates.TOOLS).render(messages) == '<user>hi<assistant><call>f({"a": "ü"})'
    assert _template(templates.NULL_AND_TEXT).render(messages) == '<user>hi<call>f{"a": "ü"}'
    messages[-1]["content"] = "so"
    assert _template(templates.NULL_AND_TEXT).render(messages) == '<user>hi<assistant>so<call>f{"a": "ü"}'
    messages[-1]["content"] = None
    assert _template(templates.ITEMS).render(messages) == "<user>hi<assistant><f><a>ü"


def test_the_last_message_is_continued() -> None:
    messages = [*USER, {"role": "assistant", "content": "It is "}]
    assert (
        _template(templates.PLAIN).render(messages, continue_final_message=True) == "<user>hi</user><assistant>It is "
    )
    assert _template(templates.ALTERNATING).render(messages, continue_final_message=True) == "[user]hi[assistant]It is "


def test_the_mark_of_the_end_may_occur_in_a_message() -> None:
    messages = [{"role": "user", "content": "\ue000continue\ue001"}, {"role": "assistant", "content": "x"}]
    text = _template(templates.PLAIN).render(messages, continue_final_message=True)
    assert text == "<user>\ue000continue\ue001</user><assistant>x"


@pytest.mark.parametrize(
    "messages", [[], USER, [{"role": "assistant", "content": "", "tool_calls": [{"function": {}}]}]]
)
def test_only_an_assistant_s_text_can_be_continued(messages: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidField, match="last message must be the assistant's") as error:
        _template(templates.PLAIN).render(messages, continue_final_message=True)
    assert error.value.param == "continue_final_message"


def test_a_hidden_last_message_cannot_be_continued() -> None:
    messages = [*USER, {"role": "assistant", "content": "x"}]
    with pytest.raises(InvalidField, match="does not show the last message"):
        _template("{{ messages[0].content }}").render(messages, continue_final_message=True)


@pytest.mark.model
def test_smollm2(smollm2: TextParts) -> None:
    assert smollm2.template is not None
    assert smollm2.template.render([{"role": "system", "content": ""}, *USER]) == (
        "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    # Null content, on which the template by itself would fail.
    assert "<|im_start|>assistant\n<|im_end|>" in smollm2.template.render(
        [*USER, {"role": "assistant", "content": None}]
    )
