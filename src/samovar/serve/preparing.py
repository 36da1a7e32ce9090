"""A request body to a job: parse, validate, tokenise, hash. No I/O, so that it can run in a worker thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import time

from samovar.core.request import Request
from samovar.core.sampling import SamplingParams
from samovar.serve.bodies import ChatBody, CompletionBody
from samovar.serve.choice_text import TextOptions
from samovar.serve.job import Job
from samovar.serve.json_input import parse_object
from samovar.serve.prompts import Domain, Prompt
from samovar.serve.sampling import AnyBody, for_choice, num_choices, sampling_params, stop_strings
from samovar.serve.session import session_of
from samovar.serve.state import ServerState
from samovar.serve.unsupported import refuse_unsupported
from samovar.serve.validation import validate


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as far as the HTTP headers tell."""

    tenant: str
    headers: Mapping[str, str]
    request_id: str


def chat_job(state: ServerState, caller: Caller, raw: bytes) -> Job:
    """Raises RequestErrors."""
    body = validate(ChatBody, parse_object(raw))
    refuse_unsupported(body)
    model = state.names.resolve(body.model)
    n = num_choices(body, 1, state.config)
    prompt = state.reader.chat(body)
    return _job(state, caller, body, model, n, (prompt,), "chatcmpl", at_start=not body.continue_final_message)


def completion_job(state: ServerState, caller: Caller, raw: bytes) -> Job:
    """Raises RequestErrors."""
    body = validate(CompletionBody, parse_object(raw))
    refuse_unsupported(body)
    model = state.names.resolve(body.model)
    n = num_choices(body, len(body.prompt) if _holds_several(body.prompt) else 1, state.config)
    prompts = tuple(state.reader.completion(body))
    echo: tuple[str, ...] = ()
    if body.echo:
        echo = tuple(
            prompt.text
            if prompt.text is not None
            else state.tokenizer.decode(prompt.token_ids, skip_special_tokens=False)
            for prompt in prompts
        )
    return _job(state, caller, body, model, n, prompts, "cmpl", at_start=False, echo=echo)


def _holds_several(prompt: object) -> bool:
    return isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)


def _job(
    state: ServerState,
    caller: Caller,
    body: AnyBody,
    model: str,
    n: int,
    prompts: tuple[Prompt, ...],
    kind: str,
    *,
    at_start: bool,
    echo: tuple[str, ...] = (),
) -> Job:
    options = body.stream_options
    samplings = [sampling_params(body, len(prompt.token_ids), state.limits, state.config) for prompt in prompts]
    session = session_of(body, caller.headers)
    domain = Domain.of(state.service.info, caller.tenant, body.cache_salt or "")
    requests: list[Request] = []
    for prompt, sampling in zip(prompts, samplings, strict=True):
        packed, keys = domain.pack(prompt.token_ids)
        requests += [
            Request(
                id=state.ids.new(),
                token_ids=packed,
                sampling=for_choice(sampling, choice),
                root=domain.root,
                keys=keys,
                tenant=caller.tenant,
                priority=body.priority or 0,
                session_id=session.id,
                parent_session_id=session.parent_id,
            )
            for choice in range(n)
        ]
    return Job(
        id=f"{kind}-{body.request_id or caller.request_id}",
        created_s=int(time.time()),
        model=model,
        prompt_tokens=tuple(len(prompt.token_ids) for prompt in prompts),
        n=n,
        requests=tuple(requests),
        text=_text_options(body, samplings, state.limits.eos_ids, at_start),
        stream=bool(body.stream),
        include_usage=options is not None and bool(options.include_usage),
        continuous_usage=options is not None and bool(options.include_usage) and bool(options.continuous_usage_stats),
        return_token_ids=bool(body.return_token_ids),
        returned_prompts=tuple(prompt.token_ids for prompt in prompts) if body.return_token_ids else (),
        echo=echo,
    )


def _text_options(
    body: AnyBody, samplings: Sequence[SamplingParams], eos_ids: tuple[int, ...], at_start: bool
) -> TextOptions:
    return TextOptions(
        stops=stop_strings(body.stop),
        include_stop=bool(body.include_stop_str_in_output),
        skip_special_tokens=body.skip_special_tokens is not False,
        at_start=at_start,
        # They differ where a prompt leaves less room than was asked for: such a choice ends before it matters.
        min_tokens=max(sampling.min_tokens for sampling in samplings),
        eos_ids=eos_ids,
        logprobs=samplings[0].logprobs,
    )
