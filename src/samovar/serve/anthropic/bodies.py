"""Request bodies of the Messages API, with the limits that need no engine to check.

Unknown fields and betas are ignored; null means "not given". Fields typed `Any` are checked by hand (`turns`,
`content`, `tools`), so that an error names the exact place.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from samovar.serve.bodies import (
    INT32_MAX,
    INT64_MAX,
    MAX_STOP_CHARACTERS,
    MAX_STOPS,
    Body,
    Name,
    SessionText,
    ShortText,
)
from samovar.serve.hint_schema import CacheMark, KvHints, NvExt
from samovar.serve.tools import MAX_TOOLS

_TEXT_BLOCK = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"enum": ["text"]}, "text": {"type": "string"}},
}
_TEXT = [{"type": "string"}, {"type": "null"}, {"type": "array", "items": _TEXT_BLOCK}]
_TURN = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {"role": {"enum": ["user", "assistant", "system"]}, "content": {"anyOf": _TEXT}},
}
_TOOL = {
    "type": "object",
    "required": ["name", "input_schema"],
    "properties": {
        "type": {"enum": [None, "custom"]},
        "name": {"type": "string", "minLength": 1},
        "description": {"type": ["string", "null"]},
        "input_schema": {"type": "object"},
    },
}
_STOP = {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARACTERS}

System = Annotated[Any, WithJsonSchema({"anyOf": _TEXT})]
Turns = Annotated[Any, WithJsonSchema({"type": "array", "items": _TURN, "minItems": 1})]
Tools = Annotated[
    list[Any],
    Field(max_length=MAX_TOOLS),
    WithJsonSchema({"type": "array", "items": _TOOL, "maxItems": MAX_TOOLS}),
]
StopSequences = Annotated[
    Any, WithJsonSchema({"anyOf": [{"type": "null"}, {"type": "array", "items": _STOP, "maxItems": MAX_STOPS}]})
]


class ConversationBody(Body):
    """What a prompt is made from: all that counting tokens looks at."""

    messages: Turns
    system: System = None
    tools: Tools | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None
    """The older place of `output_config.format`."""
    chat_template_kwargs: dict[str, Any] | None = None
    cache_salt: Name | None = None


class CountTokensBody(ConversationBody):
    pass


class MessagesBody(ConversationBody):
    max_tokens: Annotated[int, Field(ge=0, le=INT64_MAX)]
    """0 computes the prompt, for the cache, and answers nothing."""
    stream: bool | None = None
    stop_sequences: StopSequences = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    metadata: dict[str, Any] | None = None

    seed: Annotated[int, Field(ge=-INT64_MAX - 1, le=INT64_MAX)] | None = None
    priority: Annotated[int, Field(ge=-INT32_MAX - 1, le=INT32_MAX)] | None = None
    session_id: SessionText | None = None
    parent_session_id: SessionText | None = None
    prompt_cache_key: ShortText | None = None
    cache_control: CacheMark = None
    """The mark of the whole; those inside are found by `cache_marks`."""
    kv_hints: KvHints | None = None
    nvext: NvExt | None = None
    cache_report: bool | None = None
