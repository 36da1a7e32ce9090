"""Request bodies of the OpenAI and vLLM shapes, field by field, with the limits that need no engine to check.

Strict: true is no number, "1" is no 1, 1.0 is no integer. null means "not given" everywhere. Unknown fields are
ignored. Fields typed `Any` are checked by hand elsewhere (`messages`, `prompts`, `sampling`), because pydantic would
report one error per element and per member of a union.
The bounds of what may also be a default of the server are those of `config.SamplingDefaults`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError

from samovar.serve.hint_schema import CacheMark, CacheRetention, KvHints, NvExt
from samovar.serve.tools import MAX_TOOLS
from samovar.text.grammar.limits import MAX_CHOICES

INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1
MAX_SESSION_CHARACTERS = 256
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 1024
MAX_LISTED_TEXTS = 100
"""Of fields that name a few things."""
MAX_LISTED_TOKENS = 1024
"""Of `stop_token_ids` and `logit_bias`: both are walked for every token, by the runner that everyone shares."""
VISIBLE = r"^[!-~]+$"
"""Printable ASCII without spaces: fit for a header."""

_TOKEN = {"type": "integer", "minimum": 0, "maximum": INT32_MAX}
_TOKENS = {"type": "array", "items": _TOKEN, "minItems": 1}
_TEXTS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_PART = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"enum": ["text"]}, "text": {"type": "string"}},
}
_TOOL = {
    "anyOf": [
        {
            "type": "object",
            "required": ["type", "function"],
            "properties": {
                "type": {"enum": ["function"]},
                "function": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string", "minLength": 1}},
                },
            },
        },
        {
            "type": "object",
            "required": ["type"],
            "properties": {"type": {"type": "string", "minLength": 1, "not": {"enum": ["function", "custom"]}}},
        },
    ]
}
_MESSAGE = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool", "function"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "array", "items": _PART}]},
        "name": {"type": ["string", "null"]},
        "tool_call_id": {"type": ["string", "null"]},
        "tool_calls": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "object"}}]},
    },
}

Name = Annotated[str, Field(min_length=1, max_length=256)]
SessionText = Annotated[str, Field(max_length=MAX_SESSION_CHARACTERS)]
ShortText = Annotated[str, Field(max_length=1024)]
Messages = Annotated[Any, WithJsonSchema({"type": "array", "items": _MESSAGE, "minItems": 1})]
PromptInput = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                _TEXTS,
                _TOKENS,
                {"type": "array", "items": _TOKENS, "minItems": 1},
            ]
        }
    ),
]
Stop = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "null"},
                {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARACTERS},
                {
                    "type": "array",
                    "maxItems": MAX_STOPS,
                    "items": {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARACTERS},
                },
            ]
        }
    ),
]
_TokenId = Annotated[int, Field(ge=0, le=INT32_MAX)]
# Without fail_fast pydantic would report, and keep, an error for every element.
TokenIds = Annotated[list[_TokenId], Field(fail_fast=True)]
StopTokenIds = Annotated[list[_TokenId], Field(fail_fast=True, max_length=MAX_LISTED_TOKENS)]
Tools = Annotated[
    list[dict[str, Any]],
    Field(fail_fast=True, max_length=MAX_TOOLS),
    WithJsonSchema({"type": "array", "items": _TOOL, "maxItems": MAX_TOOLS}),
]
Texts = Annotated[list[str], Field(fail_fast=True, max_length=MAX_LISTED_TEXTS)]
ChoiceTexts = Annotated[list[str], Field(fail_fast=True, max_length=MAX_CHOICES)]


def _few(value: object) -> object:
    """Counts entries before they are looked at: objects have no fail_fast."""
    if isinstance(value, dict) and len(value) > MAX_LISTED_TOKENS:
        context = {"field_type": "Object", "max_length": MAX_LISTED_TOKENS, "actual_length": len(value)}
        raise PydanticKnownError("too_long", context)
    return value


LogitBias = Annotated[
    dict[str, Annotated[float, Field(ge=-100, le=100)]],
    Field(max_length=MAX_LISTED_TOKENS),
    BeforeValidator(_few),
]


@dataclass(frozen=True)
class NotYet:
    """Marks a field that would change the answer but cannot be honoured: only null and `accepted`, which ask for
    nothing, are taken (`unsupported` refuses the rest)."""

    accepted: tuple[Any, ...] = ()

    def takes(self, value: object) -> bool:
        return value is None or any(type(value) is type(fine) and value == fine for fine in self.accepted)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"enum": [None, *self.accepted], "description": "Not supported yet: any other value is refused."}


Unsupported = Annotated[Any, NotYet()]
UnsupportedFlag = Annotated[Any, NotYet((False,))]
UnsupportedList = Annotated[Any, NotYet(([],))]


class Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)

    model: Name | None = None


class SessionFields(Body):
    """What may name a session; `metadata` is also for other things."""

    session_id: SessionText | None = None
    parent_session_id: SessionText | None = None
    prompt_cache_key: ShortText | None = None
    metadata: dict[str, Any] | None = None


class HintsBody(SessionFields):
    """Either `kv_hints`, or the envelope's fields themselves, which are read as they stand."""

    model_config = ConfigDict(**Body.model_config, json_schema_extra={"required": ["session_id", "kv_hints"]})

    kv_hints: KvHints | None = None


class StreamOptions(BaseModel):
    model_config = Body.model_config

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationBody(SessionFields):
    """What chat and completions share."""

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    best_of: Annotated[int, Field(ge=0)] | None = None
    stop: Stop = None
    stop_token_ids: StopTokenIds | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    ignore_eos: bool | None = None
    max_tokens: Annotated[int, Field(ge=1, le=INT64_MAX)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=INT64_MAX)] | None = None

    seed: Annotated[int, Field(ge=-INT64_MAX - 1, le=INT64_MAX)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=INT32_MAX)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: LogitBias | None = None

    priority: Annotated[int, Field(ge=-INT32_MAX - 1, le=INT32_MAX)] | None = None
    cache_salt: Name | None = None
    request_id: Annotated[str, Field(min_length=1, max_length=128, pattern=VISIBLE)] | None = None
    kv_hints: KvHints | None = None
    nvext: NvExt | None = None
    prompt_cache_retention: CacheRetention | None = None
    prompt_cache_options: dict[str, Any] | None = None
    user: str | None = None
    return_token_ids: bool | None = None

    prompt_logprobs: Unsupported = None
    prompt_embeds: Unsupported = None
    truncate_prompt_tokens: Unsupported = None
    use_beam_search: UnsupportedFlag = None
    length_penalty: Annotated[Any, NotYet((1, 1.0))] = None
    bad_words: UnsupportedList = None
    allowed_token_ids: Unsupported = None
    logits_processors: UnsupportedList = None
    thinking_token_budget: Unsupported = None
    return_tokens_as_token_ids: UnsupportedFlag = None

    structured_outputs: dict[str, Any] | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: ChoiceTexts | None = None
    guided_grammar: str | None = None
    cache_report: bool | None = None


class ResponseFormat(BaseModel):
    model_config = Body.model_config

    type: str
    json_schema: dict[str, Any] | None = None


class ChatBody(GenerationBody):
    messages: Messages
    max_completion_tokens: Annotated[int, Field(ge=1, le=INT64_MAX)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0)] | None = None
    tools: Tools | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    modalities: Texts | None = None
    reasoning_effort: ShortText | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    cache_control: CacheMark = None
    """The mark of the whole; those inside are found by `cache_marks`."""

    echo: UnsupportedFlag = None
    prediction: Unsupported = None
    documents: UnsupportedList = None
    web_search_options: Unsupported = None
    audio: Unsupported = None
    functions: Unsupported = None
    function_call: Unsupported = None
    chat_template: Unsupported = None


class CompletionBody(GenerationBody):
    prompt: PromptInput
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0)] | None = None
    response_format: ResponseFormat | None = None
    add_special_tokens: bool | None = None
    suffix: str | None = None

    max_completion_tokens: Unsupported = None


class TokenizeBody(Body):
    """Either `prompt` or `messages`, as in vLLM."""

    prompt: str | None = None
    messages: Annotated[
        Any, WithJsonSchema({"anyOf": [{"type": "null"}, {"type": "array", "items": _MESSAGE, "minItems": 1}]})
    ] = None
    tools: Tools | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None

    chat_template: Unsupported = None


class DetokenizeBody(Body):
    tokens: TokenIds
