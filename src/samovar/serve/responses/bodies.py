"""Request bodies of the Responses API, with the limits that need no engine to check.

Unknown fields are ignored; null means "not given". Fields typed `Any` are checked by hand (`items`, `tools`, `inputs`),
so that an error names the exact place. What every API's job is made from keeps its name from `GenerationBody`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from samovar.serve.bodies import (
    INT64_MAX,
    GenerationBody,
    Name,
    NotYet,
    ShortText,
    Texts,
    Unsupported,
    UnsupportedFlag,
)
from samovar.serve.tools import MAX_TOOLS

_PART = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"enum": ["input_text"]}, "text": {"type": "string"}},
}
_ITEM = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "type": {"enum": ["message"]},
        "role": {"enum": ["user", "assistant", "system", "developer"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": _PART}]},
    },
}
_TOOL = {
    "type": "object",
    "required": ["type", "name"],
    "properties": {
        "type": {"enum": ["function"]},
        "name": {"type": "string", "minLength": 1},
        "description": {"type": ["string", "null"]},
        "parameters": {"type": ["object", "null"]},
        "strict": {"type": ["boolean", "null"]},
    },
}
_CHOICE = {"anyOf": [{"enum": [None, "none", "auto", "required"]}, {"type": "object"}]}

Input = Annotated[
    Any, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": _ITEM, "minItems": 1}]})
]
Tools = Annotated[
    list[Any],
    Field(max_length=MAX_TOOLS),
    WithJsonSchema({"type": "array", "items": _TOOL, "maxItems": MAX_TOOLS}),
]
Choice = Annotated[Any, WithJsonSchema(_CHOICE)]


class ResponsesBody(GenerationBody):
    # Without a response to continue, which a document cannot say.
    model_config = ConfigDict(**GenerationBody.model_config, json_schema_extra={"required": ["input"]})

    input: Input = None
    instructions: str | None = None
    previous_response_id: Name | None = None
    store: bool | None = None
    include: Texts | None = None

    tools: Tools | None = None
    tool_choice: Choice = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=INT64_MAX)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    """With either, a prompt that is too long is refused: nothing is dropped unasked."""
    chat_template_kwargs: dict[str, Any] | None = None

    service_tier: ShortText | None = None
    safety_identifier: ShortText | None = None

    n: Annotated[Any, NotYet((1,))] = None
    top_logprobs: Annotated[Any, NotYet((0,))] = None
    background: UnsupportedFlag = None
    conversation: Unsupported = None
    prompt: Unsupported = None
