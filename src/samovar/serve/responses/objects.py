"""Response objects: what they repeat of the request, usage, and their ends."""

from __future__ import annotations

from typing import Any

import msgspec

from samovar.base.errors import RateLimited, SamovarError, Saturated
from samovar.serve.config import SamplingDefaults
from samovar.serve.job import Job, Usage
from samovar.serve.responses.bodies import ResponsesBody

_encode = msgspec.json.Encoder().encode

_TOOL_DEFAULTS: dict[str, dict[str, Any]] = {"function": {"parameters": None, "strict": False}}
"""Fields that clients may leave out and readers of an answer count on."""


def heading(body: ResponsesBody, job: Job, defaults: SamplingDefaults) -> dict[str, Any]:
    """What stays the same from a response's beginning to its end. What may be long of it is JSON already: it is written
    several times, on the event loop."""
    tools = [{**_TOOL_DEFAULTS.get(tool["type"], {}), **tool} for tool in body.tools or ()]
    return {
        "id": job.id,
        "object": "response",
        "created_at": job.created_s,
        "model": job.model,
        "background": False,
        "instructions": as_json(body.instructions),
        "max_output_tokens": body.max_output_tokens,
        "metadata": as_json(body.metadata or {}),
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": as_json({"effort": None, "summary": None, **(body.reasoning or {})}),
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": body.store is not False,
        "temperature": defaults.temperature if body.temperature is None else body.temperature,
        "text": as_json({"format": {"type": "text"}, **(body.text or {})}),
        "tool_choice": as_json("auto" if body.tool_choice is None else body.tool_choice),
        "tools": as_json(tools),
        "top_logprobs": 0,
        "top_p": defaults.top_p if body.top_p is None else body.top_p,
        "truncation": "disabled",
        "user": as_json(body.user),
    }


def as_json(value: object) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))


def usage_fields(usage: Usage) -> dict[str, Any]:
    """Nothing is charged for writing the cache."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def failure_fields(error: SamovarError) -> dict[str, Any]:
    """`code` is one of the API's."""
    full = isinstance(error, (RateLimited, Saturated))
    return {"code": "rate_limit_exceeded" if full else "server_error", "message": error.message}
