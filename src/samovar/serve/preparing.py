"""A request body to a job: parse, validate, tokenise, hash. No I/O, so that it can run in a worker thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
import time

from samovar.core.request import Request
from samovar.serve.bodies import ChatBody, CompletionBody, GenerationBody
from samovar.serve.cache_marks import Marks, longest_s, marks_in_messages, marks_of_body, marks_on
from samovar.serve.chat_input import conversation_of
from samovar.serve.choice_text import TextOptions
from samovar.serve.conversation import Conversation
from samovar.serve.hints import Hints, hints_of
from samovar.serve.job import Job
from samovar.serve.json_input import parse_object
from samovar.serve.misses import wants_report
from samovar.serve.prompts import Domain, Prompt
from samovar.serve.sampling import (
    Wanted,
    chat_wanted,
    completion_wanted,
    for_choice,
    num_choices,
    sampling_params,
    stop_strings,
)
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
    body = validate(ChatBody, state.parsed.parse(raw, caller.tenant))
    refuse_unsupported(body)
    id = f"chatcmpl-{body.request_id or caller.request_id}"
    wanted = chat_wanted(body, state.config.max_logprobs)
    return conversation_job(state, caller, body, conversation_of(body), wanted, id, longest_s(_marks(body)))


def _marks(body: ChatBody) -> Marks:
    """Of a body whose conversation was read already."""
    yield from marks_of_body(body.cache_control)
    yield from marks_on(body.tools, "tools")
    yield from marks_in_messages(body.messages)


def conversation_job(
    state: ServerState,
    caller: Caller,
    body: GenerationBody,
    conversation: Conversation,
    wanted: Wanted,
    id: str,
    marked_s: float | None = None,
) -> Job:
    """The job of any API that talks in messages. `body`: its settings in OpenAI's words; `id`: of the answer;
    `marked_s`: how long marks inside the conversation ask to keep it. Raises RequestErrors."""
    hints = hints_of(body, caller.headers, marked_s)
    model = state.names.resolve(body.model)
    n = num_choices(body, 1, state.config)
    domain = Domain.of(state.service.info, caller.tenant, body.cache_salt or "")
    prompt = state.reader.conversation(conversation, domain)
    output = state.outputs.of(conversation, body, prompt.packed)
    wanted = replace(wanted, grammar=output.grammar, param=conversation.param)
    requests, text = _requests(state, caller, body, n, (prompt,), wanted, hints)
    job = _job(body, model, n, (prompt,), requests, id)
    return replace(
        job,
        text=replace(text, markers=output.markers, at_start=not conversation.continue_final_message),
        parser=output.parser,
        cache_report=wants_report(caller.headers, body.cache_report),
        difference=state.reader.difference(prompt, caller.tenant, requests[0].session_id),
        remember=partial(state.reader.remember, prompt),
        hints=hints,
    )


def completion_job(state: ServerState, caller: Caller, raw: bytes) -> Job:
    """Raises RequestErrors."""
    body = validate(CompletionBody, parse_object(raw))
    refuse_unsupported(body)
    hints = hints_of(body, caller.headers)
    model = state.names.resolve(body.model)
    n = num_choices(body, len(body.prompt) if _holds_several(body.prompt) else 1, state.config)
    domain = Domain.of(state.service.info, caller.tenant, body.cache_salt or "")
    prompts = tuple(state.reader.completion(body, domain))
    echo: tuple[str, ...] = ()
    if body.echo:
        echo = tuple(
            prompt.text
            if prompt.text is not None
            else state.tokenizer.decode(prompt.token_ids(), skip_special_tokens=False)
            for prompt in prompts
        )
    wanted = completion_wanted(body, state.config.max_logprobs)
    wanted = replace(wanted, grammar=state.outputs.grammar_of(body))
    requests, text = _requests(state, caller, body, n, prompts, wanted, hints)
    job = _job(body, model, n, prompts, requests, f"cmpl-{body.request_id or caller.request_id}")
    return replace(
        job,
        text=replace(text, at_start=False),
        echo=echo,
        cache_report=wants_report(caller.headers, body.cache_report),
        hints=hints,
    )


def _requests(
    state: ServerState,
    caller: Caller,
    body: GenerationBody,
    n: int,
    prompts: Sequence[Prompt],
    wanted: Wanted,
    hints: Hints,
) -> tuple[tuple[Request, ...], TextOptions]:
    """`n` for each prompt, and how their tokens become text. The hints go with the first: they are of the session."""
    samplings = [sampling_params(body, wanted, prompt.num_tokens, state.limits, state.config) for prompt in prompts]
    priority = hints.priority if body.priority is None else body.priority
    requests = tuple(
        Request(
            id=state.ids.new(),
            token_ids=prompt.packed,
            sampling=for_choice(sampling, choice),
            root=prompt.root,
            keys=prompt.keys,
            tenant=caller.tenant,
            priority=priority or 0,
            session_id=hints.session.id,
            parent_session_id=hints.session.parent_id,
            hints=hints.actions if prompt is prompts[0] and choice == 0 else (),
            session_is_shared=hints.session.shared,
        )
        for prompt, sampling in zip(prompts, samplings, strict=True)
        for choice in range(n)
    )
    text = TextOptions(
        stops=stop_strings(body.stop),
        include_stop=bool(body.include_stop_str_in_output),
        skip_special_tokens=body.skip_special_tokens is not False,
        # They differ where a prompt leaves less room than was asked for: such a choice ends before it matters.
        min_tokens=max(sampling.min_tokens for sampling in samplings),
        eos_ids=state.limits.eos_ids,
        logprobs=wanted.logprobs,
    )
    return requests, text


def _job(
    body: GenerationBody,
    model: str,
    n: int,
    prompts: Sequence[Prompt],
    requests: tuple[Request, ...],
    id: str,
) -> Job:
    options = body.stream_options
    usage = options is not None and bool(options.include_usage)
    return Job(
        id=id,
        created_s=int(time.time()),
        model=model,
        prompt_tokens=tuple(prompt.num_tokens for prompt in prompts),
        n=n,
        requests=requests,
        text=TextOptions(),
        stream=bool(body.stream),
        include_usage=usage,
        continuous_usage=usage and options is not None and bool(options.continuous_usage_stats),
        return_token_ids=bool(body.return_token_ids),
        returned_prompts=tuple(prompt.token_ids() for prompt in prompts) if body.return_token_ids else (),
    )


def _holds_several(prompt: object) -> bool:
    return isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)
