"""A Messages body to a job or a number of tokens. No I/O, so that it can run in a worker thread."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from samovar.serve.anthropic.bodies import CountTokensBody, MessagesBody
from samovar.serve.anthropic.conversation_input import conversation_of
from samovar.serve.anthropic.silent import Silent
from samovar.serve.bodies import GenerationBody
from samovar.serve.cache_marks import Marks, longest_s, marks_in_messages, marks_of_body, marks_on
from samovar.serve.ignored_tools import IgnoredTools
from samovar.serve.job import Job
from samovar.serve.json_input import parse_object
from samovar.serve.preparing import Caller, conversation_job
from samovar.serve.prompts import Domain
from samovar.serve.sampling import Wanted, stop_strings
from samovar.serve.state import ServerState
from samovar.serve.validation import validate


def messages_job(ignored: IgnoredTools, state: ServerState, caller: Caller, raw: bytes) -> Job:
    """Raises RequestErrors."""
    body = validate(MessagesBody, parse_object(raw))
    settings = generation_body(body)
    # The engine's answers have a token at least; with nothing to answer, nobody is shown it (`silent`).
    wanted = Wanted(max_tokens=max(1, body.max_tokens))
    conversation = conversation_of(body, ignored)
    id = f"msg_{caller.request_id}"
    job = conversation_job(state, caller, settings, conversation, wanted, id, longest_s(_marks(body)))
    return job if body.max_tokens else replace(job, parser=Silent, remember=None)


def count_tokens(ignored: IgnoredTools, state: ServerState, caller: Caller, raw: bytes) -> dict[str, Any]:
    """The tokens that the same body's prompt has in a call, also when they are too many for one. Raises
    RequestErrors."""
    body = validate(CountTokensBody, parse_object(raw))
    state.names.resolve(body.model)
    domain = Domain.of(state.service.info, caller.tenant, body.cache_salt or "")
    prompt = state.reader.conversation(conversation_of(body, ignored), domain, bounded=False, remember=False)
    return {"input_tokens": prompt.num_tokens}


def generation_body(body: MessagesBody) -> GenerationBody:
    """The settings in the words that every API's job is made from."""
    return GenerationBody(
        model=body.model,
        stream=body.stream,
        stop=list(stop_strings(body.stop_sequences, "stop_sequences", alone=False)),
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        seed=body.seed,
        priority=body.priority,
        cache_salt=body.cache_salt,
        session_id=body.session_id,
        parent_session_id=body.parent_session_id,
        prompt_cache_key=body.prompt_cache_key,
        kv_hints=body.kv_hints,
        nvext=body.nvext,
        metadata=body.metadata,
        cache_report=body.cache_report,
    )


def _marks(body: MessagesBody) -> Marks:
    """Of a body whose conversation was read already."""
    yield from marks_of_body(body.cache_control)
    yield from marks_on(body.tools, "tools")
    yield from marks_on(body.system, "system")
    yield from marks_in_messages(body.messages)
