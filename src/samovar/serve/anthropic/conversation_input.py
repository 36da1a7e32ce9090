"""A Messages body to the inner conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.anthropic.bodies import ConversationBody, MessagesBody
from samovar.serve.anthropic.tools import read_choice, read_tools
from samovar.serve.anthropic.turns import inner_messages
from samovar.serve.conversation import Conversation, OutputShape
from samovar.serve.ignored_tools import IgnoredTools
from samovar.serve.json_input import child
from samovar.serve.output_shape import read_shape


def conversation_of(body: ConversationBody, ignored: IgnoredTools) -> Conversation:
    """Raises InvalidField with the path of the first fault. What is only counted may end with a call."""
    messages = inner_messages(body.system, body.messages)
    prefill = messages[-1]["role"] == "assistant"
    calls = prefill and "tool_calls" in messages[-1]
    if calls and isinstance(body, MessagesBody):
        path = child("messages", len(body.messages) - 1)
        raise InvalidField(
            f"{path}: ends the conversation with tool_use; a user message with its tool_result must follow.",
            param=path,
        )
    tools = read_tools(body.tools, ignored)
    choice, parallel = read_choice(body.tool_choice, tools)
    return Conversation(
        messages,
        tools,
        tool_choice=choice,
        parallel_calls=parallel,
        shape=_shape(body),
        template_variables={**_thinking(body.thinking), **(body.chat_template_kwargs or {})},
        add_generation_prompt=not prefill,
        continue_final_message=prefill and not calls,
    )


def _thinking(thinking: Mapping[str, Any] | None) -> dict[str, Any]:
    """What templates of models that can think look at, under the two names in use. Not asked for: as the model is by
    itself. There are several ways to ask, and more come; budgets and displays have no meaning here."""
    if thinking is None:
        return {}
    kind = thinking.get("type")
    if not isinstance(kind, str):
        raise InvalidField(
            f"thinking.type: must be a string such as 'enabled' or 'disabled'; got {shown(kind)}.",
            param="thinking.type",
        )
    on = kind != "disabled"
    return {"enable_thinking": on, "thinking": on}


def _shape(body: ConversationBody) -> OutputShape:
    path, form = "output_config.format", (body.output_config or {}).get("format")
    if form is None:
        path, form = "output_format", body.output_format
    # The API promises that an answer fits, so a schema that cannot be enforced is an error.
    return read_shape(form, path, kinds=("json_schema",), strict=True)
