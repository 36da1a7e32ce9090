"""The one inner form of a conversation: every API's adapter makes it; prompts, constraints and parsers come from it.

Messages are plain objects in the shape of OpenAI's chat completions, because that is what chat templates are written
for: `role` (system, user, assistant, tool), `content` as text, `reasoning_content`, `tool_calls` (`id`, `type`
"function", `function` with `name` and `arguments` as JSON text, as the model wrote it), `tool_call_id`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ToolMode = Literal["none", "auto", "required"]


@dataclass(frozen=True, slots=True)
class Tool:
    """What the model may call. `name` is what the model sees: an adapter that has names of another form (namespaces)
    maps them."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """JSON schema of an object."""
    strict: bool = False
    """Arguments must satisfy the schema: they are generated under a constraint."""
    custom: bool = False
    """Takes raw text instead of JSON: the schema is that of {"input": string}."""
    grammar: str = ""
    """Of a custom tool's input: Lark; "" for free text."""
    path: str = "tools"
    """Where its schema stands in the body, for errors."""
    definition: Mapping[str, Any] | None = None
    """The tool as an OpenAI client wrote it, which a template may look at; None: made from the fields above."""

    def for_template(self) -> dict[str, Any]:
        if self.definition is not None:
            return dict(self.definition)
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    mode: ToolMode = "auto"
    name: str | None = None
    """Only this tool, with mode "required"."""


@dataclass(frozen=True, slots=True)
class OutputShape:
    """What `response_format` asks of the text: nothing, any JSON object, or JSON of a schema."""

    kind: Literal["text", "json_object", "json_schema"] = "text"
    schema: Mapping[str, Any] | None = None
    path: str = "response_format"
    """Where the schema stands in the body, for errors."""
    strict: bool = False
    """A schema that cannot be enforced whole is an error."""


@dataclass(frozen=True, slots=True)
class Conversation:
    messages: list[dict[str, Any]]
    """Owned by the conversation; nobody changes them."""
    tools: tuple[Tool, ...] = ()
    """What may be called."""
    tool_choice: ToolChoice = ToolChoice()
    parallel_calls: bool = True
    """More than one call in an answer."""
    shape: OutputShape = OutputShape()
    template_variables: Mapping[str, Any] = field(default_factory=dict)
    """A request's `chat_template_kwargs`."""
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    param: str = "messages"
    """What this API calls the messages, for errors."""
    shown_tools: tuple[Tool, ...] | None = None
    """What the prompt shows, where only some of it may be called; None: `tools`."""

    @property
    def offered_tools(self) -> tuple[Tool, ...]:
        """The tools that the prompt shows: all, whatever the choice, so that a turn that forbids calls, or allows some
        only, keeps the prefix of those that do not."""
        return self.tools if self.shown_tools is None else self.shown_tools
