"""Chat templates: messages to the prompt's text, as the checkpoint's authors wrote it down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateError, TemplateSyntaxError

from samovar.base.errors import CheckpointError, InvalidField, RequestError
from samovar.text.marks import unmarked
from samovar.text.messages import Message, prepare
from samovar.text.template_environment import build_environment
from samovar.text.template_shape import only_appends
from samovar.text.template_traits import TemplateTraits, probe

MAX_OUTPUT_CHARS = 64 << 20
# What a template can meet in a client's messages; anything else is a fault of ours and must not look like theirs.
_TEMPLATE_FAULTS = (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RuntimeError)
_OWN_VARIABLES = (
    "messages",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "raise_exception",
    "strftime_now",
)
# Private-use characters: no template tests for them, none trims them.
_CONTINUE_MARK = "\ue000continue\ue001"


class ChatTemplate:
    """The templates of one checkpoint by name, compiled. Immutable; safe to use from several threads."""

    def __init__(
        self,
        sources: Mapping[str, str],
        special_tokens: Mapping[str, str],
        clock: Callable[[], datetime] | None = None,
        origin: str = "chat template",
        max_output_chars: int = MAX_OUTPUT_CHARS,
    ) -> None:
        """`sources`: "default", and "tool_use" where a checkpoint has another for requests with tools; a single one
        serves whatever its name. `special_tokens` by role ("bos_token", ...) are variables of every template. `clock`:
        what `strftime_now` reads. `origin` names the file in errors.

        Raises CheckpointError when a template does not compile or none can be the default.
        """
        if "default" not in sources and len(sources) != 1:
            raise CheckpointError(f"{origin}: no template named 'default' among {sorted(sources)}")
        environment = build_environment(clock)
        self._special_tokens = dict(special_tokens)
        self._max_output_chars = max_output_chars
        self._sources = dict(sources)
        self._templates: dict[str, Template] = {}
        for name, source in sources.items():
            try:
                self._templates[name] = environment.from_string(source)
            except TemplateSyntaxError as error:
                raise CheckpointError(
                    f"{origin}: template {name!r} does not compile: line {error.lineno}: {error.message}"
                ) from error
        self._default = "default" if "default" in sources else next(iter(sources))
        self._traits = {name: self._probe(template) for name, template in self._templates.items()}
        self._appends = {name: only_appends(environment.parse(source)) for name, source in sources.items()}

    @property
    def reads_tools(self) -> bool:
        """Whether definitions of tools show in a prompt at all."""
        return self._traits[self._choose(with_tools=True)].reads_tools

    def source(self, *, with_tools: bool) -> str:
        """Of the template that requests with or without tools are rendered by."""
        return self._sources[self._choose(with_tools)]

    def traits(self, *, with_tools: bool) -> TemplateTraits:
        return self._traits[self._choose(with_tools)]

    def appends(self, *, with_tools: bool) -> bool:
        """As `only_appends`."""
        return self._appends[self._choose(with_tools)]

    def render(
        self,
        messages: Sequence[Message],
        /,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt's text. Messages are first brought into the form this template takes (`messages.prepare`).
        `continue_final_message`: the text ends where the last message does, for the model to go on with it. `extra`:
        further variables of the template, such as `enable_thinking`: a request's `chat_template_kwargs`.

        Raises InvalidField: for one of `extra` that is not the request's to set, and (param "messages") with the
        template's own words when it refuses them; and RequestError when its output would be too long.
        """
        return self.write(
            prepare(messages, self.traits(with_tools=bool(tools))),
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            extra=extra,
        )

    def write(
        self,
        arranged: Sequence[Message],
        /,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        """As `render`, for messages that `messages.arrange` made."""
        extra = extra or {}
        for name in _OWN_VARIABLES:
            if name in extra:
                where = f"chat_template_kwargs.{name}"
                raise InvalidField(f"{where}: is set by the server and cannot be given here.", param=where)
        if continue_final_message:
            add_generation_prompt = False
            arranged = _marked(arranged)
        variables = {**self._special_tokens, "documents": None, **extra}
        variables.update(messages=arranged, tools=list(tools) if tools else None)
        variables.update(add_generation_prompt=add_generation_prompt)
        text = self._run(self._templates[self._choose(with_tools=bool(tools))], variables)
        return _cut_at_mark(text) if continue_final_message else text

    def _choose(self, with_tools: bool) -> str:
        return "tool_use" if with_tools and "tool_use" in self._templates else self._default

    def _run(self, template: Template, variables: Mapping[str, Any]) -> str:
        pieces: list[str] = []
        room = self._max_output_chars
        try:
            for piece in template.generate(variables):
                room -= len(piece)
                if room < 0:
                    break
                pieces.append(piece)
        except _TEMPLATE_FAULTS as error:
            why = unmarked(str(error))  # it may quote what a message says
            raise InvalidField(f"messages: the chat template refused them: {why}", param="messages") from error
        if room < 0:
            raise RequestError(f"messages: rendered, they exceed {self._max_output_chars} characters", param="messages")
        return "".join(pieces)

    def _probe(self, template: Template) -> TemplateTraits:
        def attempt(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None) -> str | None:
            variables = {**self._special_tokens, "documents": None, "messages": messages, "tools": tools}
            try:
                return self._run(template, {**variables, "add_generation_prompt": True})
            except RequestError:
                return None

        return probe(attempt)


def _marked(messages: Sequence[Message]) -> list[Message]:
    """`messages` with a mark at the end of the last one's text, where the prompt is to end."""
    if not messages or messages[-1].get("role") != "assistant" or messages[-1].get("tool_calls"):
        raise InvalidField(
            "continue_final_message: the last message must be the assistant's, without tool calls",
            param="continue_final_message",
        )
    return [*messages[:-1], {**messages[-1], "content": messages[-1]["content"] + _CONTINUE_MARK}]


def _cut_at_mark(text: str) -> str:
    # The last one: an earlier message may hold the same characters.
    end = text.rfind(_CONTINUE_MARK)
    if end < 0:
        raise InvalidField(
            "continue_final_message: the chat template does not show the last message", param="continue_final_message"
        )
    return text[:end]
