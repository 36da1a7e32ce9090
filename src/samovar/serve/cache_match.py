"""`POST /v1/cache/match`: how much of a prompt would be found here, for whoever chooses where to send it.

Takes the body of a generation request and asks for the caller's own part of the cache: a key or a salt of somebody else
is never reached, and nothing is counted, touched or kept longer because of the question.
"""

from __future__ import annotations

from typing import Any

from samovar.base.errors import InvalidField
from samovar.core.ports import Service
from samovar.serve.bodies import ChatBody, CompletionBody, GenerationBody
from samovar.serve.chat_input import conversation_of
from samovar.serve.context import check_fits
from samovar.serve.json_input import parse_object
from samovar.serve.preparing import Caller
from samovar.serve.prompts import Domain, Prompt
from samovar.serve.state import ServerState
from samovar.serve.unsupported import refuse_unsupported
from samovar.serve.validation import validate


def prompt_of(state: ServerState, caller: Caller, raw: bytes) -> Prompt:
    """The prompt that the same body would have as a request to /v1/chat/completions or /v1/completions. Raises
    RequestErrors, those that the request itself would get; several prompts at once are refused."""
    value = parse_object(raw)
    if "messages" in value:
        chat = validate(ChatBody, value)
        refuse_unsupported(chat)
        state.names.resolve(chat.model)
        conversation = conversation_of(chat)
        prompt = state.reader.conversation(conversation, _domain(state, caller, chat), remember=False)
        check_fits(prompt.num_tokens, state.limits.max_model_len, conversation.param)
        return prompt
    body = validate(CompletionBody, value)
    refuse_unsupported(body)
    state.names.resolve(body.model)
    prompts = state.reader.completion(body, _domain(state, caller, body))
    if len(prompts) > 1:
        raise InvalidField(f"prompt: ask for one prompt at a time; got {len(prompts)}.", param="prompt")
    check_fits(prompts[0].num_tokens, state.limits.max_model_len, "prompt")
    return prompts[0]


def _domain(state: ServerState, caller: Caller, body: GenerationBody) -> Domain:
    return Domain.of(state.service.info, caller.tenant, body.cache_salt or "")


async def match_answer(service: Service, keys: bytes, num_tokens: int) -> dict[str, Any]:
    """What the endpoint says of a prompt of `num_tokens` whose full blocks have `keys`. Raises EngineDead."""
    found = await service.match(keys, num_tokens)
    return {
        "prompt_tokens": num_tokens,
        "cached_tokens": found.num_cached_tokens,
        "tiers": found.tiers,
        "block_size": service.info.block_tokens,
    }
