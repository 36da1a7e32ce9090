"""One request to the Responses API, from its body to what is kept of the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

from samovar.base.errors import InvalidField, NotFound, RequestError, SamovarError
from samovar.base.shown import shown
from samovar.serve.drain import Fail
from samovar.serve.ignored_tools import IgnoredTools
from samovar.serve.job import Job
from samovar.serve.json_input import parse_object
from samovar.serve.preparing import Caller, conversation_job
from samovar.serve.responses.bodies import ResponsesBody
from samovar.serve.responses.compact import MAX_SUMMARY_TOKENS, kept_messages, summarising
from samovar.serve.responses.format import CompactionFormat, Output, Response, ResponsesFormat
from samovar.serve.responses.inputs import Asked, read
from samovar.serve.responses.listed import listed
from samovar.serve.responses.objects import as_json, heading
from samovar.serve.responses.output import OutputItems
from samovar.serve.responses.store import ResponseStore, Running, Segment, Stored, encoded
from samovar.serve.responses.summary_output import SummaryItem
from samovar.serve.sampling import Wanted
from samovar.serve.state import ServerState
from samovar.serve.unsupported import refuse_unsupported
from samovar.serve.validation import validate

SEALED_REASONING = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"

Heading: TypeAlias = Mapping[str, Any]


class Exchange:
    """`compaction`: the request is for /v1/responses/compact. Used once; `close` it when the request is over."""

    def __init__(self, store: ResponseStore, ignored: IgnoredTools, *, compaction: bool = False) -> None:
        self._store = store
        self._ignored = ignored
        self._compaction = compaction
        self._format: ResponsesFormat | None = None
        self._fail: Fail = lambda error: None
        self._cancelled: SamovarError | None = None
        self._make: Callable[[Heading], ResponsesFormat] | None = None
        self._heading: Heading = {}
        self._forget: Callable[[], object] = lambda: None
        self.final: Response | None = None
        """The response object, once nothing changes any more."""
        self.ignored_tools: tuple[str, ...] = ()

    def opened(self, fail: Fail) -> None:
        """`fail` ends the request early."""
        self._fail = fail

    def prepare(self, state: ServerState, caller: Caller, raw: bytes) -> Job:
        """Raises RequestErrors."""
        body = validate(ResponsesBody, parse_object(raw))
        refuse_unsupported(body)
        if LOGPROBS in (body.include or ()):
            raise InvalidField(f"include: {LOGPROBS!r} is not supported yet.", param="include")
        if body.max_tokens is not None:
            raise InvalidField("max_tokens: this API calls it max_output_tokens.", param="max_tokens")
        if self._compaction:
            body = body.model_copy(update={"stream": False, "store": False, "tool_choice": None})
        parent = self._continued(caller.tenant, body.previous_response_id)
        history = parent.history() if parent else []
        asked = read(body, history, partial(self._store.items, caller.tenant), self._ignored)
        self.ignored_tools = asked.toolbox.ignored
        compacts = self._compaction or asked.compacts
        conversation = summarising(asked.conversation) if compacts else asked.conversation
        most = body.max_output_tokens
        wanted = Wanted(max_tokens=MAX_SUMMARY_TOKENS if compacts and most is None else most)
        job = conversation_job(state, caller, body, conversation, wanted, f"resp_{uuid4().hex}")
        kept = kept_messages([*history, *asked.items], state.limits.max_model_len) if compacts else None
        self._make = self._maker(body, asked, parent, kept, caller.tenant, job)
        self._heading = heading(body, job, state.config.sampling)
        return job

    def format(self, job: Job) -> ResponsesFormat:
        assert self._make is not None, "a format follows a job"
        told = {} if job.kv_hints is None else {"kv_hints": job.kv_hints}
        self._format = self._make({**self._heading, **told})
        return self._format

    def cancel(self) -> None:
        if self._format is not None and self._cancelled is None:
            self._cancelled = RequestError("The response was cancelled.")
            self._format.cancel()
            self._fail(self._cancelled)

    def failed(self, error: SamovarError) -> Response:
        """The answer to a request that is not streamed when it was cancelled; raises any other error."""
        if error is not self._cancelled or self._format is None:
            raise error
        self._format.error(error)
        assert self.final is not None
        return self.final

    def close(self) -> None:
        """What has not ended by now has no end: its client is gone."""
        if self.final is None:
            self._forget()

    def _continued(self, tenant: str, id: str | None) -> Segment | None:
        if id is None:
            return None
        if self._store.running(tenant, id) is not None:
            raise InvalidField(f"previous_response_id: {shown(id)} is still in progress.", param="previous_response_id")
        stored = self._store.stored(tenant, id)
        if stored is None:
            raise NotFound(
                f"previous_response_id: there is no response {shown(id)} here (any more).",
                param="previous_response_id",
            )
        return stored.segment

    def _maker(
        self,
        body: ResponsesBody,
        asked: Asked,
        parent: Segment | None,
        kept: Sequence[Any] | None,
        tenant: str,
        job: Job,
    ) -> Callable[[Heading], ResponsesFormat]:
        """What makes the format of a heading. That runs on the event loop, where nothing of the conversation may be
        walked any more, and is kept for the whole answer: it holds what the answer needs, in bytes, and nothing else
        of the body."""
        if self._compaction:
            assert kept is not None
            shown = tuple(map(as_json, listed(kept, job.nonce)))
            return partial(CompactionFormat, output=SummaryItem(job.nonce), kept=shown)
        output: Output = SummaryItem(job.nonce)
        if kept is None:
            output = OutputItems(
                asked.toolbox.names,
                job.nonce,
                as_summary=(body.reasoning or {}).get("summary") is not None,
                sealed=SEALED_REASONING in (body.include or ()),
            )
        if body.store is False:
            return partial(ResponsesFormat, output=output, ended=self._ended)
        # A summary replaces what it was made from: nothing before it is part of the conversation any more.
        before, items = (parent, asked.items) if kept is None else (None, kept)
        inputs = encoded(listed(items, job.nonce))
        return partial(self._stored, output=output, tenant=tenant, id=job.id, parent=before, inputs=inputs)

    def _stored(
        self,
        head: Heading,
        output: Output,
        tenant: str,
        id: str,
        parent: Segment | None,
        inputs: bytes,
    ) -> ResponsesFormat:
        format = ResponsesFormat(head, output, partial(self._kept, tenant, parent, inputs))
        self._forget = partial(self._store.forget, tenant, id)
        self._store.begin(tenant, id, Running(format.snapshot, self.cancel))
        return format

    def _ended(self, response: Response) -> None:
        self.final = response

    def _kept(self, tenant: str, parent: Segment | None, inputs: bytes, response: Response) -> None:
        self.final = response
        segment = Segment.of(parent, inputs, response["output"])
        self._store.complete(tenant, response["id"], Stored.of(response, segment))
